"""What the installed ``genai-prices`` knows, as dated rows of our price book.

Invariant: a name is listed only if the package itself finds this very model under it, and a price
is listed only as far as a row can say it. Amounts are US dollars per million tokens. What a row
cannot say is left out (a price that depends on the hour) or said in its source (a dearer rate for
long prompts, other rates for sound and pictures).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib.metadata import version

from genai_prices import types
from genai_prices.data import providers

PROVIDERS = (
    "openai",
    "anthropic",
    "google",
    "mistral",
    "groq",
    "azure",
    "cohere",
    "deepseek",
    "x-ai",
)
SOURCE = f"genai-prices {version('genai-prices')}"
# Where the package gives no date, its price holds for all of its past.
SINCE = datetime(2023, 1, 1, tzinfo=UTC)
_KINDS = {
    "input_mtok": "input",
    "cache_read_mtok": "cached_read",
    "cache_write_mtok": "cache_write",
    "output_mtok": "output",
}
_OTHER_MEDIA = re.compile(r"(audio|image|video)_")
# What a provider calls the tier in its answers -> how the package asks for that tier's prices.
_TIERS = {
    "": {},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "batch": {"processing": "batch"},
}
_DATE = re.compile(r"(?:[-@]\d{4}-\d{2}-\d{2}|[-@]\d{8}|-latest)\Z")
_CUT_DATE = re.compile(r"[-@.](?:20\d{2})?\Z")


@dataclass(frozen=True, slots=True)
class Listed:
    """One price as it is to stand in the book."""

    provider: str
    model: str
    tier: str
    token_kind: str
    per_million: Decimal
    valid_from: datetime
    source: str

    @property
    def key(self) -> tuple[str, str, str, str, datetime]:
        """What the book holds only once."""
        return self.provider, self.model, self.tier, self.token_kind, self.valid_from


@cache
def listed() -> tuple[Listed, ...]:
    """Every price of ``PROVIDERS``, each key once."""
    return tuple(_listed())


def _listed() -> Iterator[Listed]:
    for provider in providers:
        if provider.id not in PROVIDERS:
            continue
        for model in provider.models:
            names = sorted(_names(provider, model))
            for tier, kind, amount, start, source in _prices(model):
                for name in names:
                    yield Listed(provider.id, name, tier, kind, amount, start, source)


def _names(provider: types.Provider, model: types.ModelInfo) -> set[str]:
    """The names under which a served model is looked up: written out, and without a date."""
    written = {model.id, *_literals(model.match)}
    names = {name.lower() for name in written | {_DATE.sub("", name) for name in written}}
    return {
        name
        for name in names
        if len(name) <= 200
        and _CUT_DATE.search(name) is None
        and (found := provider.find_model(name)) is not None
        and found.id == model.id
    }


def _literals(clause: object) -> Iterator[str]:
    match clause:
        case types.ClauseEquals():
            yield clause.equals
        case types.ClauseStartsWith():
            yield clause.starts_with
        case types.ClauseOr():
            for part in clause.or_:
                yield from _literals(part)


def _prices(model: types.ModelInfo) -> Iterator[tuple[str, str, Decimal, datetime, str]]:
    """(tier, token kind, amount, valid from, source) of one model."""
    dated = [] if isinstance(model.prices, types.ModelPrice) else model.prices
    if any(isinstance(price.constraint, types.TimeOfDateConstraint) for price in dated):
        return
    starts = sorted({SINCE} | {_begin(c) for c in _constraints(model)})
    for tier, asked in _TIERS.items():
        before: dict[str, Decimal] = {}
        for start in starts:
            if asked and not _offered(model, asked, start):
                continue
            price = model.get_prices(start, price_context=asked)
            now = _amounts(price)
            if "input" not in now:
                continue
            for kind, amount in now.items():
                if before.get(kind) != amount:
                    yield tier, kind, amount, start, _source(price)
            before = now


def _constraints(model: types.ModelInfo) -> Iterator[types.StartDateConstraint]:
    dated = [] if isinstance(model.prices, types.ModelPrice) else model.prices
    for priced in [*dated, *(model.price_variants or ())]:
        if isinstance(priced.constraint, types.StartDateConstraint):
            yield priced.constraint


def _begin(constraint: types.StartDateConstraint) -> datetime:
    day: date = constraint.start_date
    return max(SINCE, datetime.combine(day, time(), tzinfo=UTC))


def _offered(model: types.ModelInfo, asked: dict[str, str], at: datetime) -> bool:
    """True when the package has prices of its own for that tier at that time."""
    return any(
        variant.when == asked and (variant.constraint is None or variant.constraint.active(at))
        for variant in model.price_variants or ()
    )


def _amounts(price: types.ModelPrice) -> dict[str, Decimal]:
    found = {}
    for name, kind in _KINDS.items():
        amount = getattr(price, name, None)
        if amount is not None:
            found[kind] = amount.base if isinstance(amount, types.TieredPrices) else amount
    return found


def _source(price: types.ModelPrice) -> str:
    notes = [SOURCE]
    tiered = [v for v in vars(price).values() if isinstance(v, types.TieredPrices)]
    if tiered:
        notes.append(f"long prompts (above {tiered[0].tiers[0].start:,} tokens) cost more")
    if any(v is not None and _OTHER_MEDIA.search(name) for name, v in vars(price).items()):
        notes.append("text tokens; sound and pictures have other rates")
    return "; ".join(notes)
