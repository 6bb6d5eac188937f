"""A temporary folder that another user can enter, as the server's must when root runs the tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded import PREFIX


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """Not below pytest's own folder: each pytest on the machine closes that one to others."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)
