"""What buckets hold and held, per scope and instance, and what a budget's object says of them."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import Client

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.domain.precedence import Selection
from controlplane.models import RetryBudget
from controlplane.reports import budgets
from tests import builders
from tests.controlplane.ingest.batches import batch, budget, now
from tests.controlplane.ingest.conftest import Sender
from tests.controlplane.reports.test_telemetry import START, nodes_of

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
STEP = timedelta(minutes=1)


def at(minute: float) -> datetime:
    begin = (now() - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    return begin + timedelta(minutes=minute)


async def test_every_word_of_a_bucket_is_kept_and_read_by_step(sender: Sender) -> None:
    said = [
        budget(at(0.2), balance=40, spent=3),
        budget(at(0.8), balance=10, spent=30, refused=2),
        budget(at(2.5), balance=5),
        budget(at(0.5), scope="tenant/acme", balance=1),
    ]
    await sender.send(batch(*said, boot=ONE))
    await sender.send(batch(budget(at(0.4), balance=0, refused=7), boot=TWO, slot="host-b/0"))
    # The same events in another batch are no new ones.
    again = await sender.send(batch(*said, boot=ONE, seq=2))
    assert again["duplicates"] == 4
    found = await sync_to_async(budgets.series)("system/", at(0), at(5), STEP)
    assert [(h.at, h.instances, h.at_zero, h.balance, h.refused) for h in found] == [
        (at(0), 2, 1, 10, 9),
        (at(2), 1, 0, 5, 0),
    ]
    other = Selection(gateway="nobody")
    assert await sync_to_async(budgets.series)("system/", at(0), at(5), STEP, other) == []


@pytest.mark.parametrize(
    ("level", "selection", "scope", "matches"),
    [
        ("system", Selection(), "system/", True),
        ("system", Selection(), "tenant/acme", False),
        ("tenant", Selection(), "tenant/acme", True),
        ("tenant", Selection(tenant="acme"), "tenant/acme", True),
        ("tenant", Selection(tenant="acme"), "tenant/zeta", False),
        ("circuit", Selection(provider="openai"), "circuit/openai/gpt-4o@eu", True),
        ("circuit", Selection(provider="openai", region="us"), "circuit/openai/gpt-4o@eu", False),
        ("circuit", Selection(), "circuit/", False),
    ],
)
def test_a_budget_is_about_the_buckets_that_it_matches(
    level: str, selection: Selection, scope: str, matches: bool
) -> None:
    assert budgets.covers(level, selection, scope) is matches


async def test_a_budgets_object_tells_its_buckets(sender: Sender) -> None:
    recent = now() - timedelta(seconds=2)
    said = [
        budget(recent, scope="circuit/openai/gpt-4o", balance=7, earned=9, spent=2, refused=1),
        budget(recent, scope="circuit/groq/llama", balance=8),
        budget(recent, balance=99),
    ]
    await sender.send(batch(*said))
    status = await sync_to_async(_status)()
    assert status["bucketsInAll"] == 1
    (bucket,) = status["buckets"]
    assert bucket.pop("gateway").startswith("gw-")
    assert datetime.fromisoformat(bucket.pop("reportedAt")) <= now()
    assert bucket == {
        "scope": "circuit/openai/gpt-4o",
        "slot": "host-a/0",
        "balance": 7,
        "earned": 9,
        "spent": 2,
        "refused": 1,
        "windowSeconds": 60.0,
    }


def _status() -> dict[str, Any]:
    RetryBudget.objects.create(
        name="openai",
        level="circuit",
        provider="openai",
        spec={},
        resource_version=1,
        created_at=now(),
        created_by="tests",
        updated_at=now(),
        updated_by="tests",
    )
    token = tokens.issue(actor=SYSTEM, name="reader", role="viewer", now=builders.now()).token
    headers = {"Authorization": f"Bearer {token}"}
    answer = Client().get("/api/v1/budgets/openai", headers=headers)
    assert answer.status_code == 200, answer.content
    status: dict[str, Any] = answer.json()["status"]
    return status


@pytest.mark.django_db(transaction=True)
def test_the_series_prunes_days_and_uses_its_index() -> None:
    values = {"scope": "system/", "start": START, "end": START + 2 * STEP, "step": STEP}
    statement = budgets.named_sql(budgets._SQL / "budget_series.sql")
    with connection.cursor() as cursor:
        days = (START.date() - timedelta(days=3), START.date() + timedelta(days=3))
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", days)
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", values | {"gateways": None})
            nodes = nodes_of(cursor.fetchone()[0][0]["Plan"])
        finally:
            cursor.execute("RESET enable_seqscan")
    used = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert used == {f"budget_event_{START:%Y%m%d}_scope_occurred_at_idx"}
