"""``manage.py seed_prices``: what a fresh installation can price; nothing else changes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command
from genai_prices.data import providers

from controlplane.actions.price_list import PROVIDERS, SOURCE, listed
from controlplane.domain.pricing import CostStatus, PriceBook, PriceRow, RateRow
from controlplane.models import AuditEntry, FxRate, Price, Revision
from controlplane.wire.events import Tokens

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def run() -> str:
    said = StringIO()
    call_command("seed_prices", stdout=said)
    return said.getvalue()


def book() -> PriceBook:
    prices = Price.objects.values_list(
        "id", "provider", "model", "tier", "token_kind", "currency", "per_million", "valid_from"
    )
    rates = FxRate.objects.values_list("id", "currency", "day", "gbp")
    return PriceBook([PriceRow(*row) for row in prices], [RateRow(*row) for row in rates])


def test_a_name_is_listed_only_under_the_model_that_the_package_finds() -> None:
    by_id = {provider.id: provider for provider in providers}
    rows = listed()
    assert {row.provider for row in rows} == set(PROVIDERS)
    assert len({row.key for row in rows}) == len(rows)
    standard = [row for row in rows if (row.tier, row.token_kind) == ("", "output")]
    standard = [row for row in standard if row.valid_from <= NOW]
    newest = {(r.provider, r.model): r for r in sorted(standard, key=lambda r: r.valid_from)}
    for (provider, name), row in newest.items():
        model = by_id[provider].find_model(name)
        assert model is not None
        amount = model.get_prices(NOW).output_mtok
        assert row.per_million == getattr(amount, "base", amount), (provider, name)


def test_a_price_that_depends_on_the_hour_is_left_out() -> None:
    assert not [row for row in listed() if row.model == "deepseek-chat"]


@pytest.mark.django_db
def test_a_fresh_book_prices_what_was_served_in_pounds() -> None:
    assert "prices of genai-prices" in run()
    cost = book().cost(
        Tokens(input=1000, output=500),
        provider="openai",
        model="gpt-4.1",
        served_model="gpt-4.1-2025-04-14",
        tier="default",
        at=NOW,
        billing="billed",
    )
    assert (cost.native, cost.status) == (Decimal("0.006"), CostStatus.PRICED)
    assert cost.gbp == Decimal("0.006") * Decimal("0.7571786161")
    unknown = book().cost(
        Tokens(input=1, output=1), provider="openai", model="no-such-model", served_model=None,
        tier="", at=NOW, billing="billed",
    )  # fmt: skip
    assert (unknown.gbp, unknown.status) == (None, CostStatus.UNPRICED)


@pytest.mark.django_db
def test_rates_are_the_published_figures_with_their_source() -> None:
    run()
    euro, dollar = (FxRate.objects.get(currency=c, day=date(2026, 10, 8)) for c in ("EUR", "USD"))
    assert euro.gbp == Decimal("0.84698")
    assert dollar.gbp == (Decimal("0.84698") / Decimal("1.1186")).quantize(Decimal("1e-10"))
    assert "European Central Bank reference rates of 2026-10-08" in dollar.source


@pytest.mark.django_db
def test_a_second_run_changes_nothing_and_a_changed_price_stays() -> None:
    run()
    Price.objects.filter(model="gpt-4.1", tier="").update(per_million=7, created_by="somebody")
    before = (Price.objects.count(), AuditEntry.objects.count(), Revision.objects.get().value)
    assert run() == ""
    assert before == (
        Price.objects.count(),
        AuditEntry.objects.count(),
        Revision.objects.get().value,
    )
    assert set(
        Price.objects.filter(model="gpt-4.1", tier="").values_list("per_million", flat=True)
    ) == {Decimal(7)}


@pytest.mark.django_db
def test_only_what_is_missing_is_added() -> None:
    run()
    Price.objects.filter(provider="groq").delete()
    added = [row for row in listed() if row.provider == "groq"]
    assert run() == f"added {len(added)} prices of {SOURCE}\n"
    assert Price.objects.filter(provider="groq").count() == len(added)
