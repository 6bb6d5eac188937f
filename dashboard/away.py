"""What is answered while Postgres is away: a page that waits for it, or a problem document.

A statement that Postgres has ended at its time limit is told as that: its page does not ask again.

Invariant: nothing here asks the database, neither for who looks nor for a session; whoever wrote
is never told that it was kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from controlplane.api.door import problem_answer
from controlplane.errors import Busy, TooSlow
from controlplane.models.pool import AWAY, is_timeout

RETRY_AFTER_S = 5
_AWAY = "Postgres does not answer; try again."

log = logging.getLogger(__name__)


def is_away(error: BaseException) -> bool:
    """True of an error that says nothing of the statement, only that Postgres does not answer."""
    if isinstance(error, InternalError):
        return isinstance(error.__cause__, AWAY)
    return isinstance(error, OperationalError | InterfaceError)


class DatabaseAway:
    """Middleware: a view that lost its database answers 503 with ``Retry-After``, never 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The view's own answer."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer in place of the view's; None for any other error."""
        if not is_away(error):
            return None
        log.warning("%s %s: %s", request.method, request.path, error)
        problem = TooSlow() if is_timeout(error) else Busy(_AWAY, retry_after_s=RETRY_AFTER_S)
        if request.path.startswith("/api/"):
            return problem_answer(problem)
        read = request.method in {"GET", "HEAD"}
        slow = problem.detail if isinstance(problem, TooSlow) else ""
        page = render_to_string("503.html", {"read": read, "slow": slow})
        answer = HttpResponse(page, status=503)
        answer["Retry-After"] = str(problem.retry_after_s)
        answer["Cache-Control"] = "no-store"
        return answer
