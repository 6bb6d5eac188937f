"""The hour of a brownout, told in rows: minutes, failures, transitions, hands, marks.

Invariant: told by minutes before ``end``, the same each time; a story has no randomness.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import connection

from controlplane.models import Annotation, Circuit, CircuitState, Gateway, Instance
from tests import builders
from tests.dashboard import fleets

LENGTH = 75
# minute -> share of openai's calls that fail
_FAILING = [0.0] * 17 + [0.2, 0.5, 0.75, 0.9, 0.88, 0.85, 0.8, 0.7] + [0.3] * 8
_FAILING += [0.12] * 12 + [0.05] * 15 + [0.004] * 15
_OPENS_AT = {0: (19, 58), 1: (20, 53), 2: (18, 49), 3: (22, 55), 4: (21, 60), 5: (19, 46)}

_FAILED = """
INSERT INTO attempt (gateway_id, instance_id, circuit_id, id, occurred_at, received_at, request,
    ordinal, role, rerouted, key, tenant, route, verdict, reason, counts, waited_ms,
    tokens_estimated, service_tier, billing, served, generation, cost_status)
SELECT %(gateway)s, %(instance)s, %(circuit)s, gen_random_uuid(), %(at)s, %(at)s,
    gen_random_uuid(), 1, 'first', false, 'main', 'default', 'chat', 'retryable', %(reason)s,
    true, 0, false, '', 'unknown', false, 1, 'unknown'
FROM generate_series(1, %(count)s)
"""


def brownout(end: datetime | None = None) -> list[Circuit]:
    """A fleet, and openai's brownout in the 75 minutes up to ``end`` (now). The circuits of it."""
    end = end or builders.now()
    fleet = fleets.gateways()
    everyone = [one for members in fleet.values() for one in members]
    for one in everyone:
        Instance.objects.filter(pk=one.pk).update(
            started_at=end - timedelta(hours=5), first_seen_at=end - timedelta(hours=5)
        )
    every = fleets.circuits(40)
    sick = [c for c in every if c.provider == "openai" and c.region == "us-east"][:6]
    builders.retry_budget("system", "system")
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [
            (end - timedelta(days=1)).date(), end.date()])  # fmt: skip
        # The story's minutes are not derived yet.
        cursor.execute("UPDATE rollup_watermark SET upto = %s", [end - timedelta(hours=3)])
    _minutes(next(iter(fleet)), everyone[0], every, sick, end)
    states = [
        builders.unsaved_state(one, circuit, "Closed", since=end - timedelta(hours=4))
        for circuit in every
        for one in everyone
    ]
    CircuitState.objects.bulk_create(states)
    _breakers(everyone, sick, end)
    _people(everyone, sick, end)
    # Telling it takes a while on a busy machine: whoever was in contact still is.
    Instance.objects.exclude(slot__startswith="batch-iad").update(last_seen_at=builders.now())
    return sick


def _at(end: datetime, minute: float) -> datetime:
    return end - timedelta(minutes=LENGTH - minute)


def _minutes(
    gateway: Gateway, one: Instance, every: list[Circuit], sick: list[Circuit], end: datetime
) -> None:
    told = []
    for minute, share in enumerate(_FAILING):
        at = _at(end, minute)
        for circuit in every:
            calls = (90 + 40 * (circuit.pk % 7)) * (6 if circuit in sick else 1)
            failed = round(calls * (share if circuit in sick else 0.003))
            counts = {
                "attempts": calls, "firsts": round(calls * 0.93),
                "retries": min(failed, calls // 7), "failed": failed, "refused_budget": failed // 3,
                "cost_gbp": Decimal(calls) / 700, "wasted_gbp": Decimal(failed) / 900,
            }  # fmt: skip
            told.append((circuit, at, counts))
        for reason, part in (("timeout", 5), ("overloaded", 3), ("rate_limited", 1)):
            with connection.cursor() as cursor:
                cursor.execute(_FAILED, {
                    "gateway": gateway.pk, "instance": one.pk, "circuit": sick[0].pk,
                    "at": at, "reason": reason, "count": round(60 * share * part) + 1,
                })  # fmt: skip
    builders.rollups(gateway, told)


def _breakers(everyone: list[Instance], sick: list[Circuit], end: datetime) -> None:
    told = []
    for place, circuit in enumerate(sick):
        begin, close = _OPENS_AT[place]
        for number, one in enumerate(everyone):
            if place == 5 and number > 5:
                continue  # open on some instances only
            at, state = begin + number / 60, "Closed"
            while at < close:
                told.append((one, circuit, "Open", _at(end, at), state))
                told.append((one, circuit, "HalfOpen", _at(end, at + 8), "Open"))
                at, state = at + 8.5, "HalfOpen"
            told.append((one, circuit, "Closed", _at(end, at), "HalfOpen"))
    builders.transitions([
        builders.unsaved_transition(one, circuit, to, at, from_state=before)
        for one, circuit, to, at, before in told
    ])  # fmt: skip


def _people(everyone: list[Instance], sick: list[Circuit], end: datetime) -> None:
    for circuit, begin, over, reason in (
        (sick[1], 25, 56, "probes burn money during the brownout"),
        (sick[4], 29, 60, "the same brownout; one instance refuses"),
    ):
        hand = builders.override(
            "ForceOpen", provider=circuit.provider, model=circuit.model, region=circuit.region,
            reason=reason, created_at=_at(end, begin), updated_at=_at(end, begin),
            expires_at=_at(end, over), ended_at=_at(end, over), end_cause="Expired",
        )  # fmt: skip
        for number, one in enumerate(everyone):
            refuses = one.slot == "batch-lhr-1"
            builders.delivery(
                one, hand, "Rejected" if refuses else "Applied", delivered_at=_at(end, begin),
                acknowledged_at=_at(end, begin) + timedelta(seconds=1 + number / 10),
            )  # fmt: skip
    for minute, text in ((3, "deploy gateway 2.14.1"), (54, "provider reports it fixed")):
        Annotation.objects.create(
            uid=uuid.uuid4(), at=_at(end, minute), text=text, created_at=end, created_by="oncall"
        )
