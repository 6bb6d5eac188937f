"""A real Chromium for tests: Debian's, or another that is named or installed.

Invariant: where there is none, the tests that need one skip in one loud line; a page that breaks
its content security policy, or throws, fails its test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 15_000
# What is expected without a limit of its own is about whether, not about how soon.
expect.set_options(timeout=WAIT_MS)


def _executable(playwright: Playwright) -> str | None:
    named = os.environ.get("SWITCHGEAR_CHROMIUM")
    own = playwright.chromium.executable_path
    for path in (named, "/usr/bin/chromium", "/usr/bin/chromium-browser", own):
        if path and Path(path).is_file():
            return path
    return None


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; skips the calling test where there is none."""
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        # Playwright's sync API runs a loop in this thread; the ORM is used beside it, not in it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        path = _executable(playwright)
        if path is None:
            pytest.skip("NO CHROMIUM: the browser tests did not run; apt-get install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def new_page(browser: Browser, width: int = 1440, height: int = 900) -> Iterator[Page]:
    """A page of its own context; a complaint of the browser fails the test at the end."""
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(WAIT_MS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "console",
        lambda m: complaints.append(m.text) if "Content Security Policy" in m.text else None,
    )
    yield opened
    context.close()
    assert complaints == []
