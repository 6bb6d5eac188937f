"""The price book of this process: read once, again when desired state changed or it is 30 s old.

Invariant: an attempt is priced at ingest with a book at most 30 s old; a price that is corrected
later re-costs history by a job of its own (design 4.6).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from psycopg import AsyncConnection

from controlplane.domain.pricing import Cost, PriceBook, PriceRow, RateRow
from controlplane.wire.events import Attempt

_OLDEST_SECONDS = 30.0
_PRICES = """
SELECT id, provider, model, tier, token_kind, currency, per_million, valid_from FROM price
"""
_RATES = "SELECT id, currency, day, gbp FROM fx_rate"


@dataclass(frozen=True, slots=True)
class _Cached:
    book: PriceBook
    version: tuple[str, int]
    read_at: float


_cached: _Cached | None = None


async def price_book(conn: AsyncConnection, version: tuple[str, int]) -> PriceBook:
    """The book as of ``version`` = (epoch, revision of desired state)."""
    global _cached
    now = time.monotonic()
    held = _cached
    if held is None or held.version != version or now - held.read_at > _OLDEST_SECONDS:
        prices = [PriceRow(*row) async for row in await conn.execute(_PRICES)]
        rates = [RateRow(*row) async for row in await conn.execute(_RATES)]
        held = _cached = _Cached(PriceBook(prices, rates), version, now)
    return held.book


def forget_prices() -> None:
    """Drop the book (tests; a price that this process itself has written)."""
    global _cached
    _cached = None


def cost_of(attempt: Attempt, book: PriceBook) -> Cost:
    """What an attempt cost, by what was served when it was begun."""
    return book.cost(
        attempt.tokens,
        provider=attempt.provider,
        model=attempt.model,
        served_model=attempt.served_model,
        tier=attempt.service_tier,
        at=attempt.occurred_at,
        billing=attempt.billing,
    )
