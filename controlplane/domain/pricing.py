"""What one attempt cost: dated prices of what was served, in the currency quoted and in pounds.

Invariants (design 4.6): amounts are exact decimals and are never rounded here; an unknown amount is
None and says why in its status, never 0; a served model without a price is never priced as the one
that was asked for. Prices are per million tokens; times are aware.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from enum import StrEnum
from typing import NamedTuple, Protocol

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


class Cost(NamedTuple):
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


class _Line(NamedTuple):
    """What one token of a kind costs. ``guess``: by the price of input, for want of its own."""

    per_token: Decimal
    price_id: int
    guess: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The prices in force of one model at one tier; ``mixed``: not all in ``currency``."""

    key: str
    exact_tier: bool
    currency: str
    mixed: bool
    lines: Mapping[str, _Line]
    newest: int

    @classmethod
    def of(cls, key: str, rows: Mapping[str, PriceRow], *, exact_tier: bool) -> Found:
        """From the price row of each kind."""
        quoted = {row.currency for row in rows.values()}
        lines = {k: _Line(r.per_million.scaleb(-6, EXACT), r.id, False) for k, r in rows.items()}
        for kind in ("cached_read", "cache_write"):
            # Without a price of its own the provider counts it as input; that is a guess, marked.
            if kind not in lines and "input" in lines:
                lines[kind] = lines["input"]._replace(guess=True)
        newest = max(row.id for row in rows.values())
        return cls(key, exact_tier, min(quoted), len(quoted) > 1, lines, newest)


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
            key = price.provider, price.model, _tier(price.tier)
            by_model[key][price.token_kind].append(price)
        self._prices = {key: dict(kinds) for key, kinds in by_model.items()}
        self._rates: dict[str, list[RateRow]] = defaultdict(list)
        for rate in sorted(rates, key=lambda row: row.day):
            self._rates[rate.currency].append(rate)
        self._changes = tuple(sorted({row.valid_from for row in prices}))
        self._rate_of: dict[tuple[str, int], RateRow | None] = {}
        self._remembered: dict[tuple[str, str, str, int], Found | None] = {}

    def find(self, provider: str, model: str, tier: str, at: datetime) -> Found | None:
        """Prices of ``model`` as it is written, else of the plain name behind it (``_names``); at
        its tier, else at the general one."""
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
        tier = _tier(tier)
        for name in _names(provider, model):
            for wanted in dict.fromkeys((tier, "")):
                kinds = self._prices.get((provider, name, wanted), {})
                rows = {k: row for k, dated in kinds.items() if (row := _in_force(dated, at))}
                if rows:
                    key = f"{name}:{wanted}" if wanted else name
                    return Found.of(key, rows, exact_tier=wanted == tier)
        return None

    def rate(self, currency: str, at: datetime) -> RateRow | None:
        """The latest rate of ``at``'s UTC day or earlier."""
        day = at.toordinal() if at.tzinfo is UTC else at.astimezone(UTC).toordinal()
        key = (currency, day)
        if key not in self._rate_of:
            dated = self._rates.get(currency, [])
            place = bisect_right(dated, day, key=lambda row: row.day.toordinal())
            if len(self._rate_of) >= _MOST_REMEMBERED:
                self._rate_of.clear()
            self._rate_of[key] = dated[place - 1] if place else None
        return self._rate_of[key]

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
        native, price_id, status = _amount(usage, found)
        if usage.invalid:
            status = CostStatus.INVALID_USAGE
        if native is None:
            return Cost(None, currency, None, status, price_key=key)
        if status is CostStatus.PRICED and (
            usage.estimated or billing == "unknown" or not found.exact_tier
        ):
            status = CostStatus.ESTIMATED
        return self._in_pounds(native, found, price_id, status, at)

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


def _tier(tier: str) -> str:
    """The tier that everybody gets has many names and one price."""
    tier = tier.lower()
    return "" if tier in _STANDARD_TIERS else tier


def _names(provider: str, model: str) -> Iterator[str]:
    """The names by which one served model may stand in the book, the most exact first.

    Without the date of its snapshot, without the path that some doors put before it, in small
    letters: each of them still names that model, and no other.
    """
    bare = model.removeprefix("models/").removeprefix(f"{provider}/")
    names = [way for name in (model, bare) for way in (name, _DATED.sub("", name))]
    return iter(dict.fromkeys([*names, *(name.lower() for name in names)]))


def _in_force(dated: list[PriceRow], at: datetime) -> PriceRow | None:
    place = bisect_right(dated, at, key=lambda row: row.valid_from)
    return dated[place - 1] if place else None


def _amount(usage: Usage, found: Found) -> tuple[Decimal | None, int, CostStatus]:
    """Sum of count x price, the newest price used, and how sure it is.

    A missing input or output price makes the whole amount unpriced.
    """
    lines = found.lines
    if found.mixed:
        return None, 0, CostStatus.UNPRICED
    if usage.input is None or (usage.output is None and "output" in lines):
        return None, 0, CostStatus.UNKNOWN
    total, newest, status = _ZERO, 0, CostStatus.PRICED
    for kind, count in (
        ("input", usage.input),
        ("cached_read", usage.cached_read),
        ("cache_write", usage.cache_write),
        ("output", usage.output),
        ("request", 1 if "request" in lines else 0),
    ):
        if not count:
            continue
        line = lines.get(kind)
        if line is None:
            return None, 0, CostStatus.UNPRICED
        per_token, price_id, guess = line
        total = EXACT.fma(count, per_token, total)
        if price_id > newest:
            newest = price_id
        if guess:
            status = CostStatus.ESTIMATED
    # A call of no tokens still names the prices that say so.
    return total, newest or found.newest, status
