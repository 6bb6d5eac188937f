"""Fleets for looking at: a calm one and a provider that browns out, of any number of circuits.

Invariant: figures vary by the circuit's number alone, so two runs show the same fleet.
"""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal

from controlplane.models import Circuit, CircuitState, Gateway, Instance
from tests import builders

MODELS = {
    "openai": ["gpt-4.1", "gpt-4o", "gpt-4.1-mini", "gpt-4o-mini", "o3", "o4-mini",
               "text-embedding-3-large", "text-embedding-3-small"],
    "anthropic": ["claude-sonnet-4", "claude-opus-4", "claude-3-5-haiku", "claude-3-7-sonnet"],
    "google": ["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"],
    "azure-openai": ["gpt-4.1", "gpt-4o", "gpt-4o-mini"],
    "mistral": ["mistral-large", "mistral-small"],
}  # fmt: skip
REGIONS = ["us-east", "eu", "uksouth", "europe-west2", "us-west", "ap-south", "eu-north"]


def circuits(number: int) -> list[Circuit]:
    """That many circuits of several providers and regions."""
    names = [
        (provider, model, region)
        for region in REGIONS
        for provider, models in MODELS.items()
        for model in models
    ]
    while len(names) < number:
        names += [(p, m, f"{r}-{len(names)}") for p, m, r in names[: number - len(names)]]
    return [builders.circuit(*name) for name in names[:number]]


def gateways() -> dict[Gateway, list[Instance]]:
    """Five gateways of 20 instances; the last one's two are silent."""
    made: dict[Gateway, list[Instance]] = {}
    sizes = {"chat-lhr": 6, "chat-iad": 6, "api-lhr": 5, "batch-lhr": 1, "batch-iad": 2}
    for name, size in sizes.items():
        gateway = builders.gateway(name, generation=42, labels={"tier": name.split("-")[0]})
        seen = builders.ago(139) if name == "batch-iad" else builders.now()
        made[gateway] = [
            builders.instance(gateway, f"{name}-{i + 1}", last_seen_at=seen) for i in range(size)
        ]
    return made


def populate(number: int, *, incident: bool) -> None:
    """A fleet with a quarter of an hour of history."""
    dice = random.Random(7)
    fleet = gateways()
    instances = [one for members in fleet.values() for one in members]
    everything = circuits(number)
    end = builders.now()  # once: a minute may end while this is written
    builders.retry_budget("circuits", "circuit")
    builders.retry_budget("system", "system")
    for one in instances:
        builders.budget_state(one, "system/", balance=16, spent=4, earned=20)
        builders.budget_state(one, "circuit/openai/gpt-4o@us-east", balance=0, spent=9)
    states: dict[tuple[int, int], CircuitState] = {}
    for place, circuit in enumerate(everything):
        sick = incident and circuit.provider == "openai" and place < 8
        calls = dice.choice([40, 120, 400, 900])
        for minute in range(16):
            bad = sick and minute < 12
            failed = int(calls * (0.3 + 0.1 * (place % 4))) if bad else int(calls * 0.004)
            builders.rollup(
                next(iter(fleet)), circuit, end - timedelta(minutes=minute),
                attempts=calls, firsts=int(calls * 0.95), retries=calls // (11 if bad else 100),
                failed=failed, refused_breaker=calls if bad else 0, refused_budget=9 if bad else 0,
                cost_gbp=Decimal(calls) / 800, wasted_gbp=Decimal(failed) / 1500,
            )  # fmt: skip
        for number_of, one in enumerate(instances):
            is_open = sick and number_of % 20 < 14 + place % 5
            states[one.pk, circuit.pk] = builders.unsaved_state(
                one,
                circuit,
                "Open" if is_open else "Closed",
                since=builders.ago(700 - place * 10),
                cause="FailureRatio" if is_open else "Boot",
                counters={"calls": 40, "failures": 27} if is_open else {},
                next_probe_at=builders.now() + timedelta(seconds=20 + place) if is_open else None,
            )
            if is_open:
                builders.transition(one, circuit, "Open", builders.ago(700 - place * 10))
                builders.transition(one, circuit, "HalfOpen", builders.ago(300))
                builders.transition(one, circuit, "Open", builders.ago(280), from_state="HalfOpen")
    if incident:
        _hands(instances, everything, states)
    CircuitState.objects.bulk_create(states.values())


def _hands(
    instances: list[Instance],
    everything: list[Circuit],
    states: dict[tuple[int, int], CircuitState],
) -> None:
    first, second, third = everything[4], everything[0], everything[10]
    for circuit, mode, rejected in ((first, "ForceOpen", True), (second, "ForceOpen", False),
                                    (third, "ObserveOnly", False)):  # fmt: skip
        hand = builders.override(
            mode, provider=circuit.provider, model=circuit.model, region=circuit.region,
            reason="openai browns out: stop paying for probes",
            created_at=builders.ago(240), updated_at=builders.ago(240),
        )  # fmt: skip
        for number_of, one in enumerate(instances):
            refuses = rejected and one.slot == "batch-lhr-1"
            builders.delivery(
                one, hand, "Rejected" if refuses else "Applied",
                reason="LocalFloorViolated" if refuses else "",
                acknowledged_at=builders.ago(239.5 - number_of / 20),
            )  # fmt: skip
            if not refuses:
                states[one.pk, circuit.pk] = builders.unsaved_state(
                    one, circuit, "Open" if mode == "ForceOpen" else "Closed",
                    mode=mode, override_uid=str(hand.uid), would_be="Open", since=builders.ago(239),
                )  # fmt: skip
    for one in instances[:18]:
        states[one.pk, everything[5].pk] = builders.unsaved_state(
            one, everything[5], "HalfOpen", since=builders.ago(21), cause="OpenPeriodOver"
        )
