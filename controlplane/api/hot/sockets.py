"""The door of the websockets: only a page of ours may open one, and only where one is served.

Invariant: a handshake whose ``Origin`` is not exactly our host and port, or one of
``SWITCHGEAR_TRUSTED_ORIGINS``, is refused before anybody reads its cookies. Browsers send cookies
to every port of a host, so comparing host names alone would let in the page of a neighbour's port.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import validate_host
from django.utils.http import is_same_domain

from controlplane.api.hot.http import Handler, Receive, Scope, Send, header


def same_origin(inner: Handler) -> Handler:
    """``inner``, behind the check."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if _is_ours(header(scope, b"origin"), header(scope, b"host")):
            await inner(scope, receive, send)
        else:
            await refuse(scope, receive, send)

    return checked


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Close a socket before it is open: the browser sees a 403."""
    await receive()
    await send({"type": "websocket.close", "code": 4403})


def _is_ours(origin: str, host: str) -> bool:
    try:
        came_from, name = urlsplit(origin), urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if came_from.scheme not in {"http", "https"} or not came_from.netloc:
        return False
    address = f"[{name}]" if ":" in name else name
    if came_from.netloc == host.lower() and validate_host(address, settings.ALLOWED_HOSTS):
        return True
    trusted = (urlsplit(one) for one in settings.CSRF_TRUSTED_ORIGINS)
    return any(
        one.scheme == came_from.scheme
        and is_same_domain(came_from.netloc, one.netloc.removeprefix("*"))
        for one in trusted
    )
