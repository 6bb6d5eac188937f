"""The wall's page against a network that lies, goes silent, sleeps or hides: a real Chromium.

What passes on the socket goes through the test, which holds back, repeats or drops it.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from controlplane.models import Circuit, CircuitState, Instance
from tests import builders
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import fleet, live, log_in

pytestmark = pytest.mark.browser
PATIENCE_MS = 60_000


class Wire:
    """What stands between the page's sockets and the server."""

    def __init__(self, page: Page) -> None:
        self.cut = False
        self.age_s: float | None = None  # what the server is made to say of its data, and no ping
        self.told: list[str] = []  # by the server
        self.asked: list[str] = []  # by the page
        self.opened = 0
        self.page_end: WebSocketRoute | None = None
        page.route_web_socket("**/ws/wall", self._between)

    def _between(self, socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        self.opened += 1
        self.page_end = socket

        def down(message: str | bytes) -> None:
            self.told.append(str(message))
            if self.age_s is not None:
                frame = json.loads(message) | {"age_s": self.age_s}
                message = json.dumps(frame)
                if frame["type"] == "ping":
                    return
            if not self.cut:
                socket.send(message)

        def up(message: str | bytes) -> None:
            self.asked.append(str(message))
            server.send(message)

        server.on_message(down)
        socket.on_message(up)

    def replay(self, message: str) -> None:
        """An old word again, on the newest connection."""
        assert self.page_end is not None
        self.page_end.send(message)


def one_breaker(page: Page, web: WebProcess, state: str) -> tuple[Instance, Circuit]:
    """A wall with one circuit in that state, live."""
    [one] = fleet(1)
    circuit = builders.circuit()
    builders.circuit_state(one, circuit, state)
    log_in(page, web)
    return one, circuit


def is_shown(page: Page, state: str) -> None:
    expect(page.locator(".card .is b").first).to_have_text(state, timeout=PATIENCE_MS)


def test_an_old_snapshot_is_not_believed(page: Page, web: WebProcess) -> None:
    wire = Wire(page)
    one, circuit = one_breaker(page, web, "HalfOpen")
    is_shown(page, "HalfOpen")
    old = next(text for text in wire.told if json.loads(text)["type"] == "snapshot")
    builders.circuit_state(one, circuit, "Open")
    notify()
    is_shown(page, "Open")
    page.evaluate(
        "() => { window.__said = new Set();"
        " const look = () => __said.add(document.querySelector('.card .is b').textContent);"
        " new MutationObserver(look).observe(document.getElementById('wall'),"
        " { subtree: true, childList: true, characterData: true }); look(); }"
    )
    before = len(wire.asked)
    wire.replay(old)
    # It asks for everything again, and until it has it takes no patch for a continuation.
    for _ in range(PATIENCE_MS // 100):
        page.wait_for_timeout(100)
        if len(wire.asked) > before:
            break
    assert wire.asked[-1] == '{"type":"resync"}'
    # One statement: between a delete and an insert the wall would truly say something else.
    CircuitState.objects.update(state="HalfOpen")
    notify()
    is_shown(page, "HalfOpen")
    assert page.evaluate("[...__said]") == ["Open", "HalfOpen"]


def test_ten_seconds_of_silence_are_said(page: Page, web: WebProcess) -> None:
    page.clock.install()
    wire = Wire(page)
    one, circuit = one_breaker(page, web, "Open")
    wire.cut = True
    page.clock.fast_forward(9_000)
    expect(page.locator("#stale")).to_be_hidden()
    page.clock.fast_forward(2_000)
    banner = page.locator("#stale")
    expect(banner).to_contain_text("The server has been silent for 10 s.", timeout=PATIENCE_MS)
    expect(page.locator(".card .pill-unknown")).to_contain_text("unknown (was Open 1/1 at")
    builders.circuit_state(one, circuit, "HalfOpen")
    wire.cut = False
    page.clock.fast_forward(2_000)
    live(page)
    is_shown(page, "HalfOpen")
    expect(banner).to_be_hidden()


def test_a_socket_that_only_brings_old_data_is_not_live(page: Page, web: WebProcess) -> None:
    """A server that takes long to read: each snapshot is news, and none of it is now."""
    wire = Wire(page)
    one, circuit = one_breaker(page, web, "Open")
    is_shown(page, "Open")
    wire.age_s = 45.0
    CircuitState.objects.update(state="HalfOpen")
    notify()
    banner = page.locator("#stale")
    expect(banner).to_contain_text("more than 10 s old", timeout=PATIENCE_MS)
    expect(page.locator(".pulse")).to_have_attribute("data-live", "lost")
    # The newest that is known is shown all the same, as what was.
    expect(page.locator(".card .pill-unknown")).to_contain_text("unknown (was HalfOpen")
    for state in ("Open", "HalfOpen", "Open"):
        CircuitState.objects.update(state=state)
        notify()
        expect(page.locator(".card .pill-unknown")).to_contain_text(f"unknown (was {state}")
        expect(banner).to_be_visible()
    wire.age_s = None
    live(page)
    expect(banner).to_be_hidden()
    assert one.pk
    assert circuit.pk


def test_data_that_was_nearly_old_when_it_came_is_old_before_the_silence_is_long(
    page: Page, web: WebProcess
) -> None:
    page.clock.install()
    wire = Wire(page)
    one_breaker(page, web, "Open")
    wire.age_s = 7.0
    CircuitState.objects.update(state="HalfOpen")
    notify()
    is_shown(page, "HalfOpen")
    expect(page.locator("#stale")).to_be_hidden()
    wire.cut = True
    page.clock.fast_forward(4_000)
    expect(page.locator("#stale")).to_contain_text("more than 10 s old", timeout=PATIENCE_MS)


@pytest.mark.parametrize(
    ("code", "words"), [(4401, "You are logged out."), (4403, "Your role has changed.")]
)
def test_who_is_shut_out_stays_so_until_the_page_is_loaded_again(
    page: Page, web: WebProcess, code: int, words: str
) -> None:
    page.clock.install()
    wire = Wire(page)
    one_breaker(page, web, "Closed")
    opened = wire.opened
    assert wire.page_end is not None
    wire.page_end.close(code=code, reason="")
    expect(page.locator("#stale")).to_contain_text(words)
    page.clock.fast_forward(30_000)
    page.evaluate("window.dispatchEvent(new Event('online'))")
    page.clock.fast_forward(30_000)
    expect(page.locator("#stale")).to_contain_text(words)
    assert wire.opened == opened


def test_after_a_sleep_it_is_not_now_until_it_has_been_told(page: Page, web: WebProcess) -> None:
    page.clock.install()
    wire = Wire(page)
    one, circuit = one_breaker(page, web, "Open")
    opened = wire.opened
    wire.cut = True
    page.clock.fast_forward("02:00:00")
    expect(page.locator("#stale")).to_be_visible(timeout=PATIENCE_MS)
    builders.circuit_state(one, circuit, "HalfOpen")
    wire.cut = False
    page.clock.fast_forward(20_000)
    live(page)
    is_shown(page, "HalfOpen")
    assert wire.opened > opened


def test_a_tab_that_comes_back_asks_for_everything(page: Page, web: WebProcess) -> None:
    wire = Wire(page)
    one, circuit = one_breaker(page, web, "Open")
    show = (
        "(value) => {"
        " Object.defineProperty(document, 'visibilityState', { value, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.evaluate(show, "hidden")
    wire.cut = True
    builders.circuit_state(one, circuit, "HalfOpen")
    notify()
    page.wait_for_timeout(500)
    wire.cut = False
    wire.asked.clear()
    page.evaluate(show, "visible")
    is_shown(page, "HalfOpen")
    assert '{"type":"resync"}' in wire.asked
