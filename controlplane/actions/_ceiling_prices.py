"""Prices of a gateway's targets in pounds, for its cost ceilings (design 4.3).

Invariant: the same rows at the same time give the same text, so the hash of a snapshot changes only
with a price or a rate. A target without a price in pounds has no item: under a ceiling its gateway
refuses it, because an unknown price is not 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from controlplane.domain.pricing import EXACT, PriceBook, PriceRow, RateRow
from controlplane.models import CircuitState, FxRate, Price
from controlplane.wire.desired import PriceItem

Model = tuple[str, str]
"""Provider and model: a price is the same in every region."""

_PRICE = ("id", "provider", "model", "tier", "token_kind", "currency", "per_million", "valid_from")


def reported_models() -> dict[int, set[Model]]:
    """What the instances of each gateway (by id) have said that they call."""
    found: dict[int, set[Model]] = defaultdict(set)
    rows = CircuitState.objects.values_list("gateway", "circuit__provider", "circuit__model")
    for gateway, provider, model in rows.distinct():
        found[gateway].add((provider, model))
    return found


def price_book(providers: Iterable[str]) -> PriceBook:
    """Every price of these providers, and every rate."""
    prices = Price.objects.filter(provider__in=set(providers)).values_list(*_PRICE)
    rates = FxRate.objects.values_list("id", "currency", "day", "gbp")
    return PriceBook([PriceRow(*row) for row in prices], [RateRow(*row) for row in rates])


def price_items(book: PriceBook, models: Iterable[Model], at: datetime) -> list[PriceItem]:
    """One item for each model that has a price in pounds at ``at``, by name."""
    made = (_item(book, provider, model, at) for provider, model in sorted(set(models)))
    return [item for item in made if item is not None]


def _item(book: PriceBook, provider: str, model: str, at: datetime) -> PriceItem | None:
    found = book.find(provider, model, "", at)
    if found is None or found.mixed or "input" not in found.lines:
        return None
    pounds = _pounds(book, found.currency, at)
    if pounds is None:
        return None
    amounts = {}
    for kind in ("input", "output"):
        line = found.lines.get(kind)
        # What answers with no tokens, such as an embedding, has no price for them.
        per_token = Decimal(0) if line is None else line.per_token
        amount = EXACT.multiply(per_token.scaleb(6, EXACT), pounds)
        amounts[kind] = f"{amount.normalize(EXACT):f}"
    return PriceItem(
        provider=provider, model=model, input_gbp=amounts["input"], output_gbp=amounts["output"]
    )


def _pounds(book: PriceBook, currency: str, at: datetime) -> Decimal | None:
    """What one unit of a currency is worth; None where no rate is known."""
    if currency == "GBP":
        return Decimal(1)
    rate = book.rate(currency, at)
    return None if rate is None else rate.gbp
