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


def match(scope: Scope) -> Handler | None:
    """The handler of a hot path, with the path's names put into the scope; None for Django's."""
    known = False
    for method, pattern, handler in ROUTES:
        found = pattern.fullmatch(scope["path"])
        if found is None:
            continue
        known = True
        if method == scope["method"]:
            scope["path_params"] = found.groupdict()
            return guarded(handler)
    return guarded(_wrong_method) if known else None
