"""Which static files exist: our own, and two scripts out of installed packages.

Invariant: of a package only the named file is published, so that no demo data or unused script of a
dependency is ever served.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django_htmx
import plotly
from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

OWN = Path(settings.BASE_DIR) / "dashboard" / "static"
FROM_PACKAGES = {
    "plotly.min.js": Path(plotly.__file__).parent / "package_data",
    "django_htmx/htmx-2.min.js": Path(django_htmx.__file__).parent / "static",
}


class HashedFiles(CompressedManifestStaticFilesStorage):
    """Hashed names, inside module imports too: one module under two names would run twice."""

    support_js_module_import_aggregation = True


class Finder(BaseFinder):
    """Finds our own files and exactly those of ``FROM_PACKAGES``."""

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        """The file behind a static path, or an empty list."""
        root = FROM_PACKAGES.get(path, OWN)
        candidate = (root / path).resolve()
        if not candidate.is_relative_to(root.resolve()) or not candidate.is_file():
            return []
        return [str(candidate)] if find_all else str(candidate)

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, Storage]]:
        """Every file with the storage that holds it."""
        own = FileSystemStorage(location=str(OWN))
        for file in sorted(OWN.rglob("*")):
            if file.is_file():
                yield str(file.relative_to(OWN)), own
        for name, root in FROM_PACKAGES.items():
            yield name, FileSystemStorage(location=str(root))
