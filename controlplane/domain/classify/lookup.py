"""Find the row of the provider table that fits an error answer.

Invariant: the order of the table is the only precedence; the status decides where no row does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from controlplane.domain.classify.providers import ROWS, Row
from controlplane.domain.classify.signals import Signals

# Where no row fits, the status alone: the documented default. 408, 409, 425 and 429 pass; other
# 4xx are the request's; every 5xx that is not listed is a server_error; an unknown error inside a
# 200 too.
BY_STATUS: dict[int, str] = {
    400: "invalid_request",
    401: "auth",
    402: "quota_exhausted",
    403: "permission",
    404: "model_not_found",
    407: "local_proxy",
    408: "timeout",
    409: "conflict",
    410: "model_not_found",
    413: "request_too_large",
    414: "request_too_large",
    421: "not_processed",
    423: "conflict",
    424: "model_error",
    425: "not_processed",
    429: "rate_limited",
    431: "request_too_large",
    451: "blocked_at_edge",
    499: "not_processed",
    501: "not_implemented",
    503: "overloaded",
    504: "timeout",
    505: "not_implemented",
    511: "local_proxy",  # a network that wants us to log in, between us and the provider
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}


@dataclass(frozen=True, slots=True)
class _Compiled:
    row: Row
    provider: re.Pattern[str] | None
    code: re.Pattern[str] | None
    message: re.Pattern[str] | None


def _compiled(row: Row) -> _Compiled:
    return _Compiled(
        row,
        re.compile(row.provider) if row.provider else None,
        re.compile(row.code) if row.code else None,
        re.compile(row.message) if row.message else None,
    )


_TABLE = tuple(_compiled(row) for row in ROWS)


def look_up(provider: str, status: int, signals: Signals) -> Row:
    """The first row that fits an error answer; the status's default when none does.

    ``status``: the HTTP status, or the one that an error inside a 200 states itself, else 200.
    """
    for entry in _rows_for(provider, status):
        row = entry.row
        if (
            (entry.code is None or any(map(entry.code.fullmatch, signals.codes)))
            and (entry.message is None or entry.message.search(signals.message))
            and (row.when is None or row.when(signals))
        ):
            return row
    return Row(default_of(status), statuses=(status,))


@lru_cache(maxsize=512)
def _rows_for(provider: str, status: int) -> tuple[_Compiled, ...]:
    """The rows that a provider's answer of this status can fit at all: half of the work."""
    name = provider.lower()
    return tuple(
        entry
        for entry in _TABLE
        if (not entry.row.statuses or status in entry.row.statuses)
        and (entry.provider is None or entry.provider.search(name))
    )


def default_of(status: int) -> str:
    """The reason for an answer of which only the status is understood."""
    if status in BY_STATUS:
        return BY_STATUS[status]
    if 300 <= status < 400:
        return "redirected"
    return "invalid_request" if 400 <= status < 500 else "server_error"
