"""A rebuild leaves the present of breakers as transitions and status reports have made it."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.models import Gateway, GatewayConfig
from controlplane.models.pool import close_pool
from tests.asgi import call
from tests.controlplane.ingest.batches import batch, encoded, transition
from tests.controlplane.ingest.conftest import Sender, new_sender
from tests.controlplane.ingest.test_rebuilt_is_folded import quiet  # noqa: F401

BEGIN = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
MODELS = ["stays", "comes-and-goes", "other"]
PRESENT = (
    "c.model, s.number, s.state, s.since, s.cause, s.mode, s.counters, s.next_probe_at, s.stuck,"
    " s.ramp_percent, s.override_uid"
)
ops = st.lists(
    st.tuples(st.just("change"), st.sampled_from(MODELS), st.sampled_from(["Open", "Closed"]))
    | st.tuples(st.sampled_from(["remove", "add"]), st.sampled_from(MODELS[1:]), st.just(""))
    | st.tuples(st.just("report"), st.just(""), st.just("")),
    max_size=14,
)


@dataclass
class Instance:
    """One process of a gateway: its targets, the breakers of all that it ever had, what it says."""

    sender: Sender
    name: str
    boot: uuid.UUID = field(default_factory=uuid.uuid4)
    targets: set[str] = field(default_factory=lambda: set(MODELS))
    breakers: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: int = 0
    reports: int = 0

    def change(self, model: str, to: str, at: datetime) -> dict[str, Any] | None:
        """A target's breaker goes on; the event."""
        if model not in self.targets:
            return None
        number = self.breakers.get(model, {"number": 0})["number"] + 1
        event = transition(number, to, at, model=model)
        words = {"state": to, "number": number, "since": at.isoformat(), "cause": event["cause"]}
        self.breakers[model] = words
        return event

    def report(self, at: datetime) -> dict[str, Any]:
        """What it reports of the breakers that it has."""
        first = {"state": "Closed", "number": 0, "since": BEGIN.isoformat()}
        self.reports += 1
        named = {"provider": "openai", "ramp_percent": 50}
        return {
            "slot": "host-a/0",
            "seq": self.reports,
            "sent_at": at.isoformat(),
            "started_at": BEGIN.isoformat(),
            "circuits": [
                named | self.breakers.get(model, first) | {"model": model}
                for model in sorted(self.targets)
            ],
        }

    async def deliver(self, said: dict[str, Any]) -> None:
        """An event in a batch of its own, or a report, through the real doors."""
        if "kind" in said:
            self.batches += 1
            await self.sender.send(batch(said, seq=self.batches, boot=self.boot))
            return
        path = f"/api/v1/gateways/{self.name}/instances/{self.boot}/status"
        told = {"authorization": f"Bearer {self.sender.token}"}
        answer = await call("PATCH", path, body=encoded(said), headers=told)
        assert answer.status == 200, answer.body


def new_instance() -> Instance:
    sender = new_sender()
    gateway = Gateway.objects.get(pk=sender.gateway_id)
    GatewayConfig.objects.create(
        gateway=gateway, generation=1, hash="0" * 64, revision=1, items=0, spec="{}",
        compiled_at=BEGIN,
    )  # fmt: skip
    return Instance(sender, gateway.name)


def present(of: Instance) -> list[tuple[Any, ...]]:
    statement = (
        f"SELECT {PRESENT} FROM circuit_state s JOIN circuit c ON c.id = s.circuit_id"
        " WHERE s.gateway_id = %s ORDER BY 1"
    )

    async def read() -> list[tuple[Any, ...]]:
        return await of.sender.query(statement, [of.sender.gateway_id])

    return async_to_sync(read)()


def rebuild() -> None:
    call_command("rebuild", "--from", BEGIN.isoformat(), stdout=StringIO())


def live(of: Instance, drawn: list[tuple[str, str, str]], chance: random.Random) -> list[Any]:
    """Everything that it says, in the order in which it arrives: events late, reports in order."""
    said: list[tuple[float, int, dict[str, Any]]] = []
    for place, (what, model, to) in enumerate(drawn):
        at = BEGIN + timedelta(seconds=place)
        if what == "report":
            said.append((place, place, of.report(at)))
        elif what == "change" and (event := of.change(model, to, at)):
            said.append((place + chance.choice([0, 0, 2.5, 9.5]), place, event))
        elif what in ("remove", "add"):
            (of.targets.discard if what == "remove" else of.targets.add)(model)
    return [one for _, _, one in sorted(said, key=lambda one: one[:2])]


async def _send(of: Instance, said: list[Any]) -> None:
    try:
        for one in said:
            await of.deliver(one)
    finally:
        await close_pool()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quiet")
def test_a_rebuild_changes_nothing_of_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> None:
        return None

    monkeypatch.setattr("controlplane.watch.status.observed_changed", nobody)
    with connection.cursor() as cursor:
        # Without any raw day there is nothing to rebuild, and the command says so.
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [BEGIN.date(), BEGIN.date()])

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ops, st.randoms(use_true_random=False))
    def check(drawn: list[tuple[str, str, str]], chance: random.Random) -> None:
        one = new_instance()
        said = live(one, drawn, chance)
        async_to_sync(_send)(one, said)
        folded = present(one)
        rebuild()
        assert present(one) == folded
        # A last word: what it has is what is shown, whatever was rebuilt meanwhile.
        async_to_sync(_send)(one, [one.report(BEGIN + timedelta(seconds=len(drawn)))])
        folded = present(one)
        assert {row[0] for row in folded} == one.targets
        rebuild()
        assert present(one) == folded

    check()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("late", [False, True])
def test_a_target_that_was_taken_away_stays_away(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    async def nobody(*_: object) -> None:
        return None

    monkeypatch.setattr("controlplane.watch.status.observed_changed", nobody)
    one = new_instance()
    opened = one.change("other", "Open", BEGIN)
    first, again = one.report(BEGIN + timedelta(seconds=1)), one.change("other", "Closed", BEGIN)
    one.targets.discard("other")
    without = one.report(BEGIN + timedelta(seconds=9))
    said = [opened, first, without, again] if late else [opened, first, again, without]
    async_to_sync(_send)(one, said)
    assert {row[0] for row in present(one)} == one.targets
    rebuild()
    assert {row[0] for row in present(one)} == one.targets
    one.targets.add("other")
    back = one.change("other", "Open", BEGIN + timedelta(seconds=20))
    async_to_sync(_send)(one, [back])
    assert [row[:3] for row in present(one) if row[0] == "other"] == [("other", 3, "Open")]
