"""The wall of the running product: ``make up`` on free ports, photographed in its own brownout.

Invariant: nothing on this picture was put there for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.product import Product
from tests.screenshots.camera import Camera

NAME = "wall-incident"
HISTORY_MS = 420_000  # so that the quarter-hour's drawings have something to show
_BROWNOUT_MS = 600_000


def take(browser: Browser) -> None:
    """Four pictures, each with a circuit that has just opened by itself."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Product.running(Path(folder)) as product,
    ):
        camera = Camera(browser, product.web)
        account = product.credentials
        camera.log_in(account["admin_user"], account["admin_password"])
        page = camera.page
        page.wait_for_timeout(HISTORY_MS)
        camera.as_it_stands(NAME, until=lambda: _open(page), fit=True)


def _open(page: Page) -> None:
    page.wait_for_selector("#attention .card .is[data-tone='open']", timeout=_BROWNOUT_MS)
