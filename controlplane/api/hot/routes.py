"""The table of hot paths. A path that is not here is Django's.

Invariant: this table and the OpenAPI document list the same hot routes (a test compares them).
"""

from __future__ import annotations

import re

from controlplane.api.hot.config import config
from controlplane.api.hot.events import post_events
from controlplane.api.hot.health import healthz, readyz
from controlplane.api.hot.http import Handler, Receive, Scope, Send, guarded
from controlplane.api.hot.lifespan import ON_START
from controlplane.api.hot.status import status
from controlplane.errors import Problem
from controlplane.notify import hub
from controlplane.watch.heads import heads

# Watches and wall sockets of this process share one LISTEN connection and one version poll.
ON_START.extend([hub.start, heads.start])

_GATEWAY = r"/api/v1/gateways/(?P<name>[^/]+)"

# (method, pattern, handler); a named group becomes scope["path_params"].
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    ("GET", re.compile(r"/healthz"), healthz),
    ("GET", re.compile(r"/readyz"), readyz),
    ("GET", re.compile(_GATEWAY + "/config"), config),
    ("PATCH", re.compile(_GATEWAY + "/instances/(?P<boot>[^/]+)/status"), status),
    ("POST", re.compile(r"/api/v1/events"), post_events),
]


async def _wrong_method(scope: Scope, receive: Receive, send: Send) -> None:
    raise Problem(
        f"{scope['method']} is not allowed on {scope['path']}.",
        code="method_not_allowed",
        status=405,
    )


_GUARDED = [(method, pattern, guarded(handler)) for method, pattern, handler in ROUTES]
_WRONG_METHOD = guarded(_wrong_method)
# Paths without a name in them: the door of telemetry is found at once.
_PLAIN = {
    (method, pattern.pattern): handler
    for method, pattern, handler in _GUARDED
    if not pattern.groups
}


def match(scope: Scope) -> Handler | None:
    """The handler of a hot path, with the path's names put into the scope; None for Django's."""
    plain = _PLAIN.get((scope["method"], scope["path"]))
    if plain is not None:
        scope["path_params"] = {}
        return plain
    known = False
    for method, pattern, handler in _GUARDED:
        found = pattern.fullmatch(scope["path"])
        if found is None:
            continue
        known = True
        if method == scope["method"]:
            scope["path_params"] = found.groupdict()
            return handler
    return _WRONG_METHOD if known else None
