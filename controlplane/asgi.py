"""The ASGI application: hot paths to plain functions, sockets to Channels, the rest to Django.

Invariant: what a gateway sends many times a second never passes through Django's handler (measured
here at about 270 requests/s against 30,000). Open streams end on SIGTERM: the lifespan's shutdown
sets ``stopping``, on which they wait.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
# Read by the settings. The hot paths have a pool of 8 beside it, and Postgres 100 for all.
os.environ.setdefault("SWITCHGEAR_DATABASE_POOL", "16")

import django

django.setup(set_prefix=False)

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.core.handlers.asgi import ASGIHandler
from django.urls import re_path

from controlplane.api.hot import routes
from controlplane.api.hot.http import Receive, Scope, Send
from controlplane.api.hot.lifespan import lifespan
from controlplane.api.hot.sockets import refuse, same_origin
from dashboard.sockets import websocket_urlpatterns

_django = ASGIHandler()
_sockets = same_origin(
    AuthMiddlewareStack(URLRouter([*websocket_urlpatterns, re_path("", refuse)]))
)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Route one connection."""
    if scope["type"] == "http":
        hot = routes.match(scope)
        if hot is not None:
            await hot(scope, receive, send)
        else:
            await _django(scope, receive, send)
    elif scope["type"] == "websocket":
        await _sockets(scope, receive, send)
    elif scope["type"] == "lifespan":
        await lifespan(receive, send)
