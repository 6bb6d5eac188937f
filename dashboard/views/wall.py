"""The wall's first page; every later change comes over the socket."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.reports import wall
from dashboard.board import compose
from dashboard.views.page import room, show


@require_safe
@room
def page(request: HttpRequest) -> HttpResponse:
    """The whole wall as it is now."""
    board = compose(wall.read())
    healthy = [
        {
            "provider": group.provider,
            "note": group.note,
            "tiles": [board.cards[key] for key in group.ids],
        }
        for group in board.healthy
    ]
    context = {
        "board": board,
        "attention": [board.cards[key] for key in board.attention],
        "healthy": healthy,
        "blank": {},
    }
    return show(request, "wall/wall.html", context, at="wall")
