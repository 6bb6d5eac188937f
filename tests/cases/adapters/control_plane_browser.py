"""Control-plane cases about what a browser shows and who may open its socket.

A real web process and a real Chromium. A breaker of a case is a provider with one circuit; a
transition is its row with the wake-up that a commit sends; a dropped socket is the relay between
page and server, closed; a hidden tab hears nothing until it is seen again. Times of a case are not
waited for: what counts is how long the page needs after the last event.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from playwright.sync_api import Page, WebSocketRoute, expect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from controlplane.models import Instance, Role
from tests import builders
from tests.browser import chromium, new_page
from tests.dashboard.conftest import notify, session_cookie
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import live, log_in

_STATES = {"closed": "Closed", "open": "Open", "half_open": "HalfOpen"}
_WORDS = {word: name for name, word in _STATES.items()}
_PATIENCE = 20.0
_HIDE = """hidden => {
  Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => hidden ? 'hidden' : 'visible' });
  document.dispatchEvent(new Event('visibilitychange'));
}"""  # noqa: E501


class Relay:
    """The wire between a page and the server's socket: it can be cut, muted, and replayed into."""

    def __init__(self, page: Page) -> None:
        self.cut = self.muted = False
        self.snapshots: list[str] = []
        self.route: WebSocketRoute | None = None
        page.route_web_socket("**/ws/wall", self._opened)

    def _opened(self, route: WebSocketRoute) -> None:
        if self.cut:
            route.close(code=1012)
            return
        self.route = route
        server = route.connect_to_server()
        route.on_message(server.send)
        server.on_message(lambda message: self._heard(route, str(message)))

    def _heard(self, route: WebSocketRoute, message: str) -> None:
        if '"type":"snapshot"' in message:
            self.snapshots.append(message)
        if not (self.cut or self.muted):
            route.send(message)

    def drop(self) -> None:
        """The socket goes away, and no new one is let through."""
        self.cut = True
        if self.route is not None:
            self.route.close(code=1012)


class Screen:
    """A page over one instance whose breakers a case moves."""

    def __init__(self, page: Page, web: WebProcess) -> None:
        self.page, self.web = page, web
        self.relay = Relay(page)
        self.one: Instance = builders.instance(builders.gateway("demo"))
        self.answer: dict[str, Any] = {}
        self.at = time.monotonic()

    def put(self, breaker: str, state: str) -> None:
        """The breaker is in that state from now on."""
        circuit = builders.circuit(breaker, "model", "")
        builders.circuit_state(self.one, circuit, _STATES[state])
        notify()

    def shown(self) -> dict[str, str]:
        """Each breaker's state as the page's articles say it."""
        labels = self.page.eval_on_selector_all(
            "article[data-id]",
            "all => all.map(a => [a.dataset.provider, a.getAttribute('aria-label')])",
        )
        return {breaker: _WORDS[label.rsplit(": ", 1)[1]] for breaker, label in labels}

    def settle(self, wanted: dict[str, str]) -> dict[str, str]:
        """What is shown once it is what the database holds, or at the end of patience."""
        deadline = time.monotonic() + _PATIENCE
        while self.shown() != wanted and time.monotonic() < deadline:
            self.page.wait_for_timeout(20)
        return self.shown()


@contextmanager
def _screen(request: pytest.FixtureRequest) -> Iterator[Screen]:
    web: WebProcess = request.getfixturevalue("web")
    with chromium() as browser, new_page(browser) as page:
        yield Screen(page, web)


def ws_reconnect(case: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """Play the timeline; the page's last word, and how long it took."""
    timeline = case["input"]["timeline"]
    breakers = {e["breaker"] for e in timeline if "breaker" in e}
    states = dict.fromkeys(sorted(breakers), "closed")
    for event in timeline:
        states |= event.get("shown", {})
    with _screen(request) as screen:
        for breaker, state in states.items():
            screen.put(breaker, state)
        log_in(screen.page, screen.web)
        screen.settle(states)
        for event in timeline:
            _play(screen, event, states)
        final = screen.settle(states)
        took = time.monotonic() - screen.at
        # A frame that is still on its way must not undo it.
        screen.page.wait_for_timeout(1200)
        after = screen.shown()
    shown = final if after == final else after
    names = ("shown", "shown_after_reconnect", "shown_after_visible")
    return dict.fromkeys(names, shown) | {"within_s": took} | screen.answer


def _play(screen: Screen, event: dict[str, Any], states: dict[str, str]) -> None:
    kind, page = event["event"], screen.page
    if kind == "transition":
        states[event["breaker"]] = event["to"]
        screen.put(event["breaker"], event["to"])
        if not (screen.relay.cut or screen.relay.muted):
            screen.settle(states)
    elif kind == "ws_drop":
        screen.relay.drop()
        expect(page.locator("#stale")).to_be_visible()
        dated = page.locator(".pill-unknown, .asof, .stale-only").count() > 0
        screen.answer["shown_while_down"] = (
            "marked stale or disconnected" if dated else "shown as live"
        )
    elif kind == "ws_open":
        screen.relay.cut = False
        screen.at = time.monotonic()
    elif kind == "snapshot":
        if not screen.relay.snapshots:
            screen.settle(states)
        assert screen.relay.route is not None
        screen.relay.route.send(_older(screen.relay.snapshots[0]))
        screen.at = time.monotonic()
    elif kind in ("tab_hidden", "tab_visible"):
        screen.relay.muted = kind == "tab_hidden"
        screen.at = time.monotonic()
        page.evaluate(_HIDE, kind == "tab_hidden")
    elif kind in ("ws_silent", "ws_hang"):
        # The socket stays open and nothing comes: the page must notice by itself.
        screen.relay.muted = True
        expect(page.locator("#stale")).to_be_visible(timeout=30_000)
        screen.answer["shown_while_down"] = "marked stale or disconnected"
    elif kind == "ws_resumed":
        screen.relay.muted = False
        screen.at = time.monotonic()
    elif kind != "page_loaded":
        raise LookupError(f"no part plays the event {kind!r} yet")


def _older(snapshot: str) -> str:
    """The first snapshot, as a server that has seen less would send it now."""
    assert json.loads(snapshot)["type"] == "snapshot"
    return snapshot


_SCHEMES = """all => all.map(a => new URL(a.href).protocol.slice(0, -1))"""


def _status_url(case: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """An admin types the value over a good address; which schemes the shown links then have."""
    value = case["input"]["value"]
    with _screen(request) as screen:
        page, dialogs = screen.page, []
        page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss())[1])
        circuit = builders.circuit()
        builders.circuit_state(screen.one, circuit, "Open")
        builders.provider(circuit.provider, "https://status.example.com")
        log_in(page, screen.web, Role.ADMIN)
        page.goto(f"{screen.web.url}/providers/{circuit.provider}")
        page.fill("#status_url", value)
        page.click("text=Save")
        expect(page.locator(".fault")).to_contain_text("Nothing was saved")
        schemes: list[str] = []
        circuit_page = f"/circuits/{circuit.provider}%2F{circuit.model}%40{circuit.region}"
        for path in ("/providers", circuit_page, f"/overrides/new?provider={circuit.provider}"):
            page.goto(f"{screen.web.url}{path}")
            # By its address: an object's page has an anchor "Status" of its own.
            link = page.locator("a[href='https://status.example.com']")
            expect(link).to_have_count(1)
            assert link.get_attribute("rel") == "noopener noreferrer"
            schemes += page.eval_on_selector_all("main a[href]", _SCHEMES)
    return {"link_scheme": schemes, "alerts": len(dialogs)}


# What the page says, whole. Not innerText: where the wall cuts a long name before its end it is two
# boxes, and innerText breaks the line between them; what is not shown at all is left out.
_SHOWN_TEXT = """body => {
  const shown = body.cloneNode(true);
  shown.querySelectorAll('script, style, template, [hidden]').forEach(e => e.remove());
  return shown.textContent;
}"""


def xss(case: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """Put the value where the case says, and look at every page that shows it."""
    field, value = case["input"]["field"], case["input"]["value"]
    if field in ("provider_status_url", "status_url"):
        return _status_url(case, request)
    with _screen(request) as screen:
        dialogs: list[str] = []
        screen.page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss())[1])
        paths = _placed(screen, field, value)
        log_in(screen.page, screen.web)
        texts = []
        for path in paths:
            screen.page.goto(f"{screen.web.url}{path}")
            if path == "/":
                live(screen.page)
            texts.append(value in screen.page.locator("body").evaluate(_SHOWN_TEXT))
            if field == "model":
                # The name that a screen reader says is whole however narrow the card is.
                link = screen.page.get_by_role("link", name=value, exact=True).first
                texts.append(link.is_visible() and link.text_content() == value)
            assert screen.page.locator("main img, main script:not([type])").count() == 0
    return {"rendered_as_text": all(texts), "alerts": len(dialogs)}


def _placed(screen: Screen, field: str, value: str) -> list[str]:
    """Put the value there; the pages that show it."""
    name = {"provider": "openai", "model": "gpt-4o", "region": "eu"}
    if field in name:
        circuit = builders.circuit(**(name | {field: value}))
        builders.circuit_state(screen.one, circuit, "Open")
        return ["/", "/circuits"]
    circuit = builders.circuit()
    builders.circuit_state(screen.one, circuit, "Open")
    if field in ("reason", "override_reason", "ticket", "note", "annotation"):
        builders.override("ObserveOnly", provider="openai", reason=value)
        builders.audit_entry(reason=value)
        return ["/overrides", "/audit", "/incident"]
    if field in ("gateway", "gateway_name", "slot", "instance", "hostname", "host"):
        screen.one.slot = value
        screen.one.save()
        return ["/gateways/demo"]
    if field in ("tenant", "tenant_id"):
        builders.attempts(screen.one, circuit, 1, task="t-1", tenant=value)
        return [f"/tasks/t-1?gateway=demo&tenant={quote(value)}"]
    if field in ("error_message", "error", "message", "detail"):
        _kept_aside(screen.one, value)
        return ["/telemetry"]
    raise LookupError(f"no part shows the field {field!r} yet")


def _kept_aside(one: Instance, reason: str) -> None:
    """An event that could not be stored, with words of its sender."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dead_letter"
            " (gateway_id, instance_id, seq, index, received_at, reason, body)"
            " VALUES (%s, %s, 1, 0, now(), %s, %s)",
            [one.gateway_id, one.pk, reason, reason.encode()],
        )


def cswsh(case: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """Open the socket with the case's origin and cookie; accepted means that data came."""
    web: WebProcess = request.getfixturevalue("web")
    given = case["input"]
    origin, allowed = given["handshake"].get("origin"), given.get("allowed_host")
    if allowed and origin in (f"https://{allowed}", f"http://{allowed}"):
        origin = web.url  # the case's own host is ours
    headers = {}
    cookie = given["handshake"].get("cookie")
    if cookie is not None:
        client = Client()
        client.force_login(builders.product_person("oncall"))
        headers["Cookie"] = session_cookie(web, client)
        if re.search("expired|logged_out|ended|revoked", cookie):
            client.logout()
        elif not cookie.startswith("valid"):
            headers["Cookie"] = headers["Cookie"].partition("=")[0] + "=" + quote(cookie)
    connection.close()
    address = f"ws://127.0.0.1:{web.port}/ws/wall"
    try:
        with connect(address, additional_headers=headers, origin=origin, max_size=2**24) as socket:
            socket.recv(timeout=10)
    except InvalidStatus as refused:
        return {"accepted": False, "codes": refused.response.status_code}
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else 0
        return {"accepted": False, "codes": code}
    return {"accepted": True, "codes": 101}


KINDS = {"ws_reconnect": ws_reconnect, "xss": xss, "cswsh": cswsh}
