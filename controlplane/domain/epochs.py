"""How often a gateway's word may give the database a new epoch (design 5.1).

Invariant: the first word within a day counts at once, for it may be a restored backup; each further
one of the same gateway has to wait, twice as long each time, so that one that claims what it was
never told cannot make every gateway send again and again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

# A gateway keeps what was acknowledged for an hour: a second restore within it is still made good.
FIRST_WAIT = timedelta(minutes=10)
REMEMBERED = timedelta(hours=24)
_NONE = timedelta()


def recent(mints: Iterable[datetime], now: datetime) -> list[datetime]:
    """Those that still count."""
    return [at for at in mints if now - at < REMEMBERED]


def wait(mints: Iterable[datetime], now: datetime) -> timedelta:
    """How long the gateway whose word has minted at these times has to wait for the next."""
    counted = recent(mints, now)
    if not counted:
        return _NONE
    ends: datetime = max(counted) + FIRST_WAIT * (1 << (len(counted) - 1))
    return max(_NONE, ends - now)
