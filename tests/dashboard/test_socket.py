"""The wall's websocket at a real web process: who gets in, what comes, when it is closed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from controlplane.models import Role
from tests import builders
from tests.dashboard.conftest import notify, session_cookie
from tests.dashboard.server import WebProcess

WAIT_SECONDS = 15.0


def opened(
    web: WebProcess,
    client: Client | None,
    origin: str | None = None,
    path: str = "/ws/wall",
) -> ClientConnection:
    """A socket with that client's session."""
    headers = {"Cookie": session_cookie(web, client)} if client else {}
    return connect(
        f"ws://127.0.0.1:{web.port}{path}",
        additional_headers=headers,
        origin=origin or web.url,  # type: ignore[arg-type]
        max_size=2**24,
    )


def frame(socket: ClientConnection, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first frame that is as wanted, within ``WAIT_SECONDS``."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (rest := deadline - time.monotonic()) > 0:
        found: dict[str, Any] = json.loads(socket.recv(timeout=rest))
        if wanted(found):
            return found
    raise AssertionError("no such frame came")


def closed_with(socket: ClientConnection) -> int:
    """The code that the server closes with, within ``WAIT_SECONDS``."""
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while (rest := deadline - time.monotonic()) > 0:
            socket.recv(timeout=rest)
    except ConnectionClosed:
        return socket.protocol.close_code or 0
    raise AssertionError("the socket was not closed")


def test_nobody_gets_in_without_a_session(web: WebProcess) -> None:
    with opened(web, None) as socket:
        assert closed_with(socket) == 4401


@pytest.mark.parametrize(
    "origin",
    [
        "http://elsewhere.example",
        # Cookies ignore the port, so the page of another program on this host brings ours along.
        "http://127.0.0.1:9",
        "http://127.0.0.1",
        "http://localhost:{port}",
        "http://127.0.0.1:{port}@elsewhere.example",
        "null",
        "file://",
        "http://[",
    ],
)
def test_another_origin_is_refused(web: WebProcess, oncall: Client, origin: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        opened(web, oncall, origin=origin.format(port=web.port))
    assert caught.value.response.status_code == 403


def test_a_socket_that_is_not_served_is_refused(web: WebProcess) -> None:
    with pytest.raises(InvalidStatus) as caught:
        connect(f"ws://127.0.0.1:{web.port}/ws/nothing", origin=web.url)  # type: ignore[arg-type]
    assert caught.value.response.status_code == 403


def test_first_a_snapshot_then_only_what_changed(web: WebProcess, oncall: Client) -> None:
    one = builders.instance(builders.gateway())
    sick, well = builders.circuit(model="sick"), builders.circuit(model="well")
    for circuit in (sick, well):
        builders.circuit_state(one, circuit)
    with opened(web, oncall) as socket:
        first = frame(socket, lambda f: True)
        assert first["type"] == "snapshot"
        assert first["cards"].keys() == {f"c{sick.pk}", f"c{well.pk}"}
        builders.circuit_state(one, sick, "Open")
        notify()
        patch = frame(socket, lambda f: f["type"] == "patch" and "order" in f)
        assert patch["cards"].keys() == {f"c{sick.pk}"}
        assert patch["cards"][f"c{sick.pk}"]["state"] == "Open"
        assert patch["order"]["attention"] == [f"c{sick.pk}"]
        assert patch["version"] >= first["version"]


def test_a_notification_is_seen_well_before_the_poll(web: WebProcess, oncall: Client) -> None:
    one = builders.instance(builders.gateway())
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    waits = []
    with opened(web, oncall) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        for state in ("Open", "Closed", "Open", "Closed", "Open"):
            builders.circuit_state(one, circuit, state)
            notify()
            began = time.monotonic()
            frame(socket, lambda f: "order" in f)
            waits.append(time.monotonic() - began)
    # The poll alone would take half a second on average and up to one.
    assert sorted(waits)[1] < 0.9


def test_a_change_without_a_notification_comes_by_the_poll(web: WebProcess, oncall: Client) -> None:
    one = builders.instance(builders.gateway())
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    with opened(web, oncall) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        builders.circuit_state(one, circuit, "Open")
        frame(socket, lambda f: f.get("cards", {}).get(f"c{circuit.pk}", {}).get("state") == "Open")


def test_resync_sends_everything_again_and_noise_is_ignored(
    web: WebProcess, oncall: Client
) -> None:
    with opened(web, oncall) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        for noise in ("", "[]", '{"type":"drop"}', "\x00", '"' * 5000):
            socket.send(noise)
        socket.send(b"\xff\xfe")
        socket.send('{"type":"resync"}')
        again = frame(socket, lambda f: f["type"] == "snapshot")
        assert "strip" in again


def test_while_nothing_changes_a_ping_says_how_old_the_data_is(
    web: WebProcess, oncall: Client
) -> None:
    with opened(web, oncall) as socket:
        ping = frame(socket, lambda f: f["type"] == "ping")
        assert 0 <= ping["age_s"] < 5


def test_while_the_database_cannot_be_read_the_data_is_said_to_age(
    web: WebProcess, oncall: Client
) -> None:
    with opened(web, oncall) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE rollup_minute RENAME TO rollup_minute_away")
            cursor.execute("ALTER TABLE circuit_state RENAME TO circuit_state_away")
        try:
            frame(socket, lambda f: f["type"] == "ping" and f["lost"])
            frame(socket, lambda f: f["type"] == "ping" and f["age_s"] > 2)
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE rollup_minute_away RENAME TO rollup_minute")
                cursor.execute("ALTER TABLE circuit_state_away RENAME TO circuit_state")
        frame(socket, lambda f: not f.get("lost") and f.get("age_s", 0) < 2)


def test_log_out_closes_the_socket_within_ten_seconds(web: WebProcess, oncall: Client) -> None:
    with opened(web, oncall) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        began = time.monotonic()
        oncall.logout()
        assert closed_with(socket) == 4401
        assert time.monotonic() - began < 10


def test_a_lost_role_closes_the_socket(web: WebProcess, client: Client) -> None:
    person = builders.person("oncall", Role.ADMIN)
    client.force_login(person)
    with opened(web, client) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        person.role = Role.VIEWER
        person.save()
        assert closed_with(socket) == 4403


def test_a_switched_off_account_closes_the_socket(web: WebProcess, client: Client) -> None:
    person = builders.person("oncall")
    client.force_login(person)
    with opened(web, client) as socket:
        frame(socket, lambda f: f["type"] == "snapshot")
        person.is_active = False
        person.save()
        assert closed_with(socket) == 4401


def test_news_says_that_something_was_committed_and_nothing_of_it(
    web: WebProcess, oncall: Client
) -> None:
    one = builders.instance(builders.gateway())
    with opened(web, oncall, path="/ws/news") as socket:
        first = frame(socket, lambda f: True)
        assert first.keys() == {"type", "version", "epoch", "at", "age_s"}
        assert first["type"] == "news"
        builders.circuit_state(one, builders.circuit(), "Open")
        notify()
        again = frame(socket, lambda f: f["type"] == "news")
        assert again["version"] > first["version"]
        frame(socket, lambda f: f["type"] == "ping")
        oncall.logout()
        assert closed_with(socket) == 4401


def test_news_is_not_for_strangers(web: WebProcess, oncall: Client) -> None:
    with opened(web, None, path="/ws/news") as socket:
        assert closed_with(socket) == 4401
    with pytest.raises(InvalidStatus):
        opened(web, oncall, origin="http://elsewhere.example", path="/ws/news")
