"""What one attempt cost: dated prices of what was served, in the currency quoted and in pounds.

Invariants (design 4.6): amounts are exact decimals and are never rounded here; an unknown amount is
None and says why in its status, never 0; a served model without a price is never priced as the one
that was asked for. Prices are per million tokens; times are aware.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import Protocol

# What providers call the tier that everybody gets.
_STANDARD_TIERS = frozenset({"", "default", "standard", "auto", "on_demand"})
_DATED = re.compile(r"(?:[-@]\d{4}-\d{2}-\d{2}|[-@]\d{8}|-latest)\Z")
# Wide enough for tokens x price x rate to stay exact: 10 + 24 + 20 digits.
EXACT = Context(prec=60)
_MOST_REMEMBERED = 10_000
_ZERO = Decimal(0)


class CostStatus(StrEnum):
    """How far an amount can be trusted."""

    PRICED = "priced"
    ESTIMATED = "estimated"
    UNPRICED = "unpriced"
    NOT_BILLED = "not_billed"
    UNKNOWN = "unknown"
    INVALID_USAGE = "invalid_usage"


class Usage(Protocol):
    """Disjoint token counts of one attempt; None = the provider did not say."""

    @property
    def input(self) -> int | None: ...
    @property
    def cached_read(self) -> int | None: ...
    @property
    def cache_write(self) -> int | None: ...
    @property
    def output(self) -> int | None: ...
    @property
    def estimated(self) -> bool: ...
    @property
    def invalid(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One dated price of one token kind: input, cached_read, cache_write, output, request."""

    id: int
    provider: str
    model: str
    tier: str
    token_kind: str
    currency: str
    per_million: Decimal
    valid_from: datetime


@dataclass(frozen=True, slots=True)
class RateRow:
    """Pounds for one unit of ``currency``, from ``day`` until the next row's day."""

    id: int
    currency: str
    day: date
    gbp: Decimal


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one attempt. ``price_id`` is the newest of the price rows used: with the attempt
    it names the price version. ``price_key`` is ``model`` or ``model:tier`` as found in the book.
    """

    native: Decimal | None
    currency: str | None
    gbp: Decimal | None
    status: CostStatus
    price_id: int | None = None
    fx_id: int | None = None
    price_key: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The prices in force of one model at one tier; ``mixed``: not all in ``currency``."""

    key: str
    by_kind: Mapping[str, PriceRow]
    exact_tier: bool
    currency: str
    mixed: bool


class PriceBook:
    """All dated prices and rates, indexed for a lookup by what was served and when.

    What was found is remembered for each name and the time in which no price of it changes.
    """

    def __init__(self, prices: Iterable[PriceRow], rates: Iterable[RateRow]) -> None:
        prices = list(prices)
        by_model: dict[tuple[str, str, str], dict[str, list[PriceRow]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for price in sorted(prices, key=lambda row: row.valid_from):
            by_model[price.provider, price.model, price.tier][price.token_kind].append(price)
        self._prices = {key: dict(kinds) for key, kinds in by_model.items()}
        self._rates: dict[str, list[RateRow]] = defaultdict(list)
        for rate in sorted(rates, key=lambda row: row.day):
            self._rates[rate.currency].append(rate)
        self._changes = tuple(sorted({row.valid_from for row in prices}))
        self._remembered: dict[tuple[str, str, str, int], Found | None] = {}

    def find(self, provider: str, model: str, tier: str, at: datetime) -> Found | None:
        """Prices of ``model``, else of its undated name; at its tier, else at the general one."""
        key = (provider, model, tier, bisect_right(self._changes, at))
        try:
            return self._remembered[key]
        except KeyError:
            pass
        if len(self._remembered) >= _MOST_REMEMBERED:
            # Names come from outside: whoever makes them up must not fill the memory.
            self._remembered.clear()
        found = self._remembered[key] = self._look_up(provider, model, tier, at)
        return found

    def _look_up(self, provider: str, model: str, tier: str, at: datetime) -> Found | None:
        tier = "" if tier in _STANDARD_TIERS else tier
        for name in dict.fromkeys((model, _DATED.sub("", model))):
            for wanted in dict.fromkeys((tier, "")):
                kinds = self._prices.get((provider, name, wanted), {})
                rows = {k: row for k, dated in kinds.items() if (row := _in_force(dated, at))}
                if rows:
                    key = f"{name}:{wanted}" if wanted else name
                    quoted = {row.currency for row in rows.values()}
                    exact = wanted == tier
                    return Found(key, rows, exact, min(quoted), mixed=len(quoted) > 1)
        return None

    def rate(self, currency: str, at: datetime) -> RateRow | None:
        """The latest rate of ``at``'s UTC day or earlier."""
        dated = self._rates.get(currency, [])
        place = bisect_right(dated, at.astimezone(UTC).date(), key=lambda row: row.day)
        return dated[place - 1] if place else None

    def cost(
        self,
        usage: Usage | None,
        *,
        provider: str,
        model: str,
        served_model: str | None,
        tier: str,
        at: datetime,
        billing: str,
    ) -> Cost:
        """The cost of an attempt begun at ``at``. ``billing``: billed, not_billed or unknown."""
        found = self.find(provider, served_model or model, tier, at)
        key = found.key if found else None
        currency = found.currency if found else None
        if billing == "not_billed":
            return Cost(_ZERO, currency, _ZERO, CostStatus.NOT_BILLED, price_key=key)
        if usage is None:
            return Cost(None, currency, None, CostStatus.UNKNOWN, price_key=key)
        if found is None:
            status = CostStatus.INVALID_USAGE if usage.invalid else CostStatus.UNPRICED
            return Cost(None, None, None, status)
        amount = _amount(usage, found)
        if amount.native is None:
            status = CostStatus.INVALID_USAGE if usage.invalid else amount.status
            return Cost(None, currency, None, status, price_key=key)
        status = amount.status
        if usage.estimated or billing == "unknown" or not found.exact_tier:
            status = CostStatus.ESTIMATED
        if usage.invalid:
            status = CostStatus.INVALID_USAGE
        return self._in_pounds(amount.native, found, amount.price_id, status, at)

    def _in_pounds(
        self, native: Decimal, found: Found, price_id: int, status: CostStatus, at: datetime
    ) -> Cost:
        currency = found.currency
        if currency == "GBP":
            return Cost(native, currency, native, status, price_id, None, found.key)
        rate = self.rate(currency, at)
        if rate is None:
            # An amount that cannot be told in pounds is missing from every total in pounds.
            return Cost(native, currency, None, CostStatus.UNPRICED, price_id, None, found.key)
        gbp = EXACT.multiply(native, rate.gbp)
        return Cost(native, currency, gbp, status, price_id, rate.id, found.key)


@dataclass(frozen=True, slots=True)
class _Amount:
    native: Decimal | None
    status: CostStatus
    price_id: int = 0


def _in_force(dated: list[PriceRow], at: datetime) -> PriceRow | None:
    place = bisect_right(dated, at, key=lambda row: row.valid_from)
    return dated[place - 1] if place else None


def _amount(usage: Usage, found: Found) -> _Amount:
    """Sum of count x price. A missing input or output price makes the whole amount unpriced."""
    prices = found.by_kind
    if found.mixed:
        return _Amount(None, CostStatus.UNPRICED)
    if usage.input is None or (usage.output is None and "output" in prices):
        return _Amount(None, CostStatus.UNKNOWN)
    total, status, newest = _ZERO, CostStatus.PRICED, 0
    for kind, count in (
        ("input", usage.input),
        ("cached_read", usage.cached_read),
        ("cache_write", usage.cache_write),
        ("output", usage.output),
        ("request", 1 if "request" in prices else 0),
    ):
        if not count:
            continue
        price = prices.get(kind)
        if price is None and kind in ("cached_read", "cache_write"):
            # Without a price of its own the provider counts it as input; that is a guess, marked.
            price, status = prices.get("input"), CostStatus.ESTIMATED
        if price is None:
            return _Amount(None, CostStatus.UNPRICED)
        total = EXACT.fma(count, price.per_million, total)
        newest = max(newest, price.id)
    # A call of no tokens still names the prices that say so.
    newest = newest or max(price.id for price in prices.values())
    return _Amount(EXACT.scaleb(total, -6), status, newest)
