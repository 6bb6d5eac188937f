"""Whose page may open a websocket, judged by the two headers alone."""

import pytest
from django.test import override_settings

from controlplane.api.hot.sockets import refuse, same_origin


async def asked(origin: str, host: str) -> bool:
    """Whether the handshake came through to the application behind the check."""
    came: list[bool] = []

    async def inner(scope: object, receive: object, send: object) -> None:
        came.append(True)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        assert message == {"type": "websocket.close", "code": 4403}

    headers = [(b"host", host.encode()), (b"origin", origin.encode())]
    await same_origin(inner)({"type": "websocket", "headers": headers}, receive, send)
    return bool(came)


@pytest.mark.parametrize(
    ("origin", "host", "ours"),
    [
        ("https://dash.example.test", "dash.example.test", True),
        ("http://dash.example.test:8000", "Dash.example.test:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://dash.example.test:8001", "dash.example.test:8000", False),
        ("https://not-allowed.test", "not-allowed.test", False),
        ("https://ops.corp.test", "inner:8000", True),
        ("http://ops.corp.test", "inner:8000", False),
        ("https://a.wide.test", "inner:8000", True),
        ("https://wide.test.evil.test", "inner:8000", False),
        ("https://evilwide.test", "inner:8000", False),
        ("", "dash.example.test", False),
    ],
)
async def test_only_pages_of_ours_open_sockets(origin: str, host: str, ours: bool) -> None:
    with override_settings(
        ALLOWED_HOSTS=["dash.example.test", "[::1]", "inner"],
        CSRF_TRUSTED_ORIGINS=["https://ops.corp.test", "https://*.wide.test"],
    ):
        assert await asked(origin, host) is ours


async def test_a_refused_handshake_is_closed_before_it_is_open() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        sent.append(message)

    await refuse({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 4403}]
