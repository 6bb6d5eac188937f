"""Every error that a caller can cause or must understand, as problem details (RFC 9457).

Invariant: an error names its code, its HTTP status and, for bad input, the field and what to write
there. Tree: ``Problem`` <- ``InvalidInput`` 422, ``Unauthenticated`` 401, ``Forbidden`` 403,
``NotFound`` 404, ``Conflict`` 409, ``TooLarge`` 413, ``Busy`` 503 <- ``TooSlow``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class Problem(Exception):
    """Base: rendered as ``application/problem+json`` by one function at each door."""

    status = 400
    code = "bad_request"
    title = "Bad request"

    def __init__(
        self,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        code: str | None = None,
        status: int | None = None,
        retry_after_s: int | None = None,
        **data: Any,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []
        self.code = code or self.code
        if status is not None:
            self.status, self.title = status, HTTPStatus(status).phrase
        self.retry_after_s = retry_after_s
        self.data = data

    def body(self) -> dict[str, Any]:
        """The problem document."""
        document: dict[str, Any] = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = self.errors
        return document | self.data


class InvalidInput(Problem):
    """A field is wrong; ``errors`` lists every one."""

    status, code, title = 422, "invalid_input", "Unprocessable"


class Unauthenticated(Problem):
    """No valid credential."""

    status, code, title = 401, "unauthenticated", "Unauthenticated"


class Forbidden(Problem):
    """The credential is valid and may not do this."""

    status, code, title = 403, "forbidden", "Forbidden"


class NotFound(Problem):
    """No such object; ``nearest`` may list names that are close."""

    status, code, title = 404, "not_found", "Not found"


class Conflict(Problem):
    """Somebody else changed it first; ``current`` holds the object as it is now."""

    status, code, title = 409, "conflict", "Conflict"


class TooLarge(Problem):
    """The body is over its bound."""

    status, code, title = 413, "too_large", "Too large"


class Busy(Problem):
    """Try again after ``Retry-After``."""

    status, code, title = 503, "busy", "Busy"


class TooSlow(Busy):
    """Postgres ended a statement at its time limit: asking again at once only makes it worse."""

    code, title = "too_slow", "Too slow"

    def __init__(
        self,
        detail: str = "It took longer than a statement may (30 s). Ask for less at once, such as a"
        " shorter time, or try again when Postgres is less busy.",
    ) -> None:
        super().__init__(detail, retry_after_s=60)
