"""Pictures of one page in both themes and two widths.

Invariant: a picture is taken when the page says that it is live, or has drawn its charts; its name
is ``<screen>-<theme>-<width>.png``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page

from tests import builders
from tests.screenshots.palette import reduced
from tests.screenshots.stage import in_contact

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"
THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
SIZES = ((1440, 900), (1024, 768))
_LIVE = ".pulse[data-live='on']"
_BOTTOM = "Math.ceil(document.getElementById('wall').getBoundingClientRect().bottom) + 24"


class Camera:
    """A logged-in browser that takes every screen four times."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.page: Page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        self.page.set_default_timeout(30_000)
        self._blank = browser.new_page()

    def log_in(self, name: str = "oncall", password: str = builders.PASSWORD) -> None:
        """Through the form."""
        self.page.goto(self.url)
        self.page.fill("#username", name)
        self.page.fill("#password", password)
        self.page.click("text=Log in")
        self.page.wait_for_selector(_LIVE)

    def take(
        self,
        screen: str,
        path: str,
        arrange: Callable[[Page], None] | None = None,
        *,
        whole: bool = False,
        live: bool = False,
    ) -> None:
        """Open ``path`` in each theme and width; ``arrange`` brings the page to its moment."""
        for theme in THEMES:
            for width, height in SIZES:
                self.page.emulate_media(color_scheme=theme)
                self.page.set_viewport_size({"width": width, "height": height})
                in_contact()
                self.page.goto(f"{self.url}{path}")
                if live:
                    self.page.wait_for_selector(_LIVE)
                    in_contact()
                    self.page.wait_for_timeout(1500)  # the glow of what has just changed
                if arrange:
                    arrange(self.page)
                self.shoot(f"{screen}-{theme}-{width}", whole=whole)

    def as_it_stands(
        self, screen: str, until: Callable[[], None] = lambda: None, *, fit: bool = False
    ) -> None:
        """The open page in each theme and width, without loading it again."""
        for theme in THEMES:
            for width, height in SIZES:
                self.page.emulate_media(color_scheme=theme)
                self.page.set_viewport_size({"width": width, "height": height})
                until()
                self.page.wait_for_timeout(1200)
                self.shoot(f"{screen}-{theme}-{width}", fit=fit)

    def shoot(self, name: str, *, whole: bool = False, fit: bool = False) -> None:
        """The page as it stands, as one file; ``fit`` leaves out what is empty below it."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        taken = self.page.screenshot(full_page=whole, animations="disabled", caret="hide")
        below = self.page.evaluate(_BOTTOM) if fit else None
        smaller = reduced(taken, self._blank, below)
        (FOLDER / f"{name}.png").write_bytes(smaller)
        print(f"{name}.png {len(smaller) // 1000} kB", flush=True)
