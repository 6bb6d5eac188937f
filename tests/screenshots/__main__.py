"""``make screenshots``: every screen into docs/img; ``ONLY=name,name`` takes only some.

The pictures ``wall-incident-*`` are of the running product as ``make up`` starts it, in its own
brownout; the others are of the product's web process over a fleet that is made for them.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from tests.browser import chromium  # noqa: E402
from tests.screenshots import running, scenes  # noqa: E402
from tests.screenshots.stage import stage  # noqa: E402


def main() -> int:
    """Take what was asked for."""
    only = {name for name in os.environ.get("ONLY", "").split(",") if name}
    wanted = {n: take for n, take in scenes.SCENES.items() if not only or n in only}
    unknown = only - set(scenes.SCENES) - {running.NAME}
    if unknown:
        known = ", ".join([running.NAME, *scenes.SCENES])
        print(f"unknown: {', '.join(sorted(unknown))}. Known: {known}", file=sys.stderr)
        return 2
    with chromium() as browser:
        if wanted:
            with stage() as web:
                for take in wanted.values():
                    take(browser, web)
        if not only or running.NAME in only:
            running.take(browser)
    return 0


sys.exit(main())
