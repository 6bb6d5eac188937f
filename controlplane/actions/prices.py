"""The first prices and exchange rates of an installation.

Invariant: idempotent, and a row that is there is never changed, whoever wrote it. Rates are pounds
for one unit, made of two figures of the European Central Bank's euro foreign exchange reference
rates (its daily ``eurofxref`` file of that day; ``ecb_rates.csv`` holds the published figures). A
later day uses the latest earlier rate (design 4.6).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connection

from controlplane.actions._commit import desired_change
from controlplane.actions.actor import SYSTEM
from controlplane.models import FxRate, Price

if TYPE_CHECKING:
    from controlplane.actions.price_list import Listed

_RATES = Path(__file__).parent / "ecb_rates.csv"
_STORED = Decimal(1).scaleb(-10)
# Another replica may add the same rows meanwhile.
_ADD = """
INSERT INTO price (currency, created_at, created_by, provider, model, tier, token_kind,
                   per_million, valid_from, source)
SELECT 'USD', %s, %s, row.*
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::numeric[], %s::timestamptz[],
            %s::text[]) AS row
ON CONFLICT DO NOTHING
"""


def seed(now: datetime) -> list[str]:
    """Add the prices and rates that are missing; returns what was added, in words."""
    # Read only here: the package's price list takes most of a second to import.
    from controlplane.actions.price_list import SOURCE, listed

    held = set(Price.objects.values_list("provider", "model", "tier", "token_kind", "valid_from"))
    prices = {row.key: row for row in listed() if row.key not in held}
    days = set(FxRate.objects.values_list("currency", "day"))
    rates = [rate for rate in _rates(now) if (rate.currency, rate.day) not in days]
    made = [f"{len(prices)} prices of {SOURCE}"] if prices else []
    made += [f"{len(rates)} exchange rates"] if rates else []
    if not made:
        return []
    with desired_change(SYSTEM, now) as change:
        _add(list(prices.values()), now)
        FxRate.objects.bulk_create(rates, ignore_conflicts=True)
        change.audit("seed", "PriceBook", SOURCE, after={"made": made})
    return made


def _add(rows: list[Listed], now: datetime) -> None:
    # Arrays, because the ORM takes seconds for these few thousand rows.
    columns = [
        [row.provider for row in rows],
        [row.model for row in rows],
        [row.tier for row in rows],
        [row.token_kind for row in rows],
        [row.per_million for row in rows],
        [row.valid_from for row in rows],
        [row.source for row in rows],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_ADD, [now, SYSTEM.name, *columns])


def _rates(now: datetime) -> Iterator[FxRate]:
    with _RATES.open(encoding="ascii", newline="") as file:
        for row in csv.DictReader(file):
            usd, gbp = Decimal(row["usd_per_eur"]), Decimal(row["gbp_per_eur"])
            for currency, rate in (("EUR", gbp), ("USD", gbp / usd)):
                yield FxRate(
                    currency=currency,
                    day=date.fromisoformat(row["day"]),
                    gbp=rate.quantize(_STORED),
                    source=f"European Central Bank reference rates of {row['day']}:"
                    f" EUR 1 = USD {usd} = GBP {gbp}",
                    created_at=now,
                    created_by=SYSTEM.name,
                )
