"""Rates, places and ceilings in pounds through the real proxy: who is turned away, and why."""

import asyncio
import time
from pathlib import Path
from typing import Any

from controlplane.domain.circuit import Circuit
from controlplane.wire import desired
from gateway import snapshot
from gateway.simulator.scenario import Fate
from tests.gateway import build
from tests.gateway.running import Running, running
from tests.gateway.waiting import until

MINI = ("openai", "gpt-4.1-mini")
SMALL = ("mistral", "mistral-small-latest")


def apply(gateway: Running, instances: int = 1, **spec: list[Any]) -> dict[str, Any]:
    """Put a control plane's snapshot in force."""
    live = gateway.agent.live
    told = build.snapshot_bytes(instances=instances, **spec)
    received = snapshot.read(told.replace(b'"gateway":"demo"', b'"gateway":"edge"'), "edge")
    clock = gateway.agent._clock
    items = live.apply(received, "Stream", clock.monotonic(), clock.wall())
    return {item.uid: item for item in items}


def price(of: tuple[str, str], input_gbp: str, output_gbp: str) -> desired.PriceItem:
    provider, model = of
    return desired.PriceItem(
        provider=provider, model=model, input_gbp=input_gbp, output_gbp=output_gbp
    )


def gates(gateway: Running) -> list[tuple[str, str]]:
    return [(one.gate, one.detail) for one in gateway.refusals()]


async def test_the_attempt_that_would_pass_a_tenants_ceiling_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        # 1,000 output tokens cost £0.01, the simulator answers with 40.
        gateway.conditions(output_tokens=40)
        items = apply(
            gateway,
            budgets=[build.budget("b", "tenant", max_cost_gbp="0.0105")],
            prices=[price(MINI, "0", "10")],
        )
        assert items["b"].verdict == "Applied"
        assert (await gateway.chat(max_tokens=1000)).status == 200
        # 40 tokens were spent: 1,000 more fit, 1,100 do not.
        refused = await gateway.chat(max_tokens=1100)
        assert refused.status == 503
        assert (await refused.json())["error"]["code"] == "cost"
        assert refused.headers["x-should-retry"] == "false"
        assert (await gateway.chat(max_tokens=1000)).status == 200
        assert gates(gateway) == [("cost", "tenant")]
        assert len(gateway.attempts()) == 2
        assert gateway.openai.requests == 2


async def test_what_may_have_been_billed_counts_in_full(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        gateway.fates(Fate.CUT)
        numbers: dict[str, Any] = {"max_cost_gbp_per_request": "0.015", "min_per_second": 100}
        apply(
            gateway,
            budgets=[build.budget("b", "system", **numbers)],
            prices=[price(MINI, "0", "10"), price(SMALL, "0", "1")],
        )
        # Of the answer that broke off nobody knows the cost; a second try would pass the ceiling.
        answer = await gateway.chat("assistant", max_tokens=1000)
        assert answer.status == 200
        assert [(one.provider, one.billing) for one in gateway.attempts()] == [
            ("openai", "unknown"),
            ("mistral", "billed"),
        ]
        assert gates(gateway) == [("cost", "request")]


async def test_a_failure_that_is_not_billed_gives_its_estimate_back(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        gateway.fates(Fate.SERVER_ERROR)
        apply(
            gateway,
            budgets=[
                build.budget("b", "system", max_cost_gbp_per_request="0.01", min_per_second=100),
            ],
            prices=[price(MINI, "0", "10")],
        )
        assert (await gateway.chat(max_tokens=1000)).status == 200
        assert len(gateway.attempts()) == 2
        assert gates(gateway) == []


async def test_a_tasks_ceiling_holds_over_its_requests(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        gateway.conditions(output_tokens=1000)
        apply(
            gateway,
            budgets=[build.budget("b", "tenant", max_cost_gbp_per_task="0.025")],
            prices=[price(MINI, "0", "10")],
        )
        task = {"x-switchgear-task": "job"}
        statuses = [(await gateway.chat(max_tokens=1000, headers=task)).status for _ in range(3)]
        assert statuses == [200, 200, 503]
        assert gates(gateway) == [("cost", "task")]
        other = await gateway.chat(max_tokens=1000, headers={"x-switchgear-task": "other"})
        assert other.status == 200


async def test_a_cheaper_fallback_serves_what_the_first_target_would_cost_too_much(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as gateway:
        apply(
            gateway,
            budgets=[build.budget("b", "system", max_cost_gbp_per_request="0.01")],
            prices=[price(MINI, "0", "100"), price(SMALL, "0", "1")],
        )
        answer = await gateway.chat("assistant", max_tokens=1000)
        assert answer.status == 200
        assert answer.headers["x-switchgear-circuit"] == "mistral/mistral-small-latest"
        assert gates(gateway) == [("cost", "request")]


async def test_an_unpriced_target_is_refused_only_under_a_ceiling(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        assert (await gateway.chat()).status == 200
        apply(gateway, budgets=[build.budget("b", "system", max_cost_gbp="1000")])
        assert (await gateway.chat()).status == 503
        assert gates(gateway) == [("cost", "unpriced")]
        apply(gateway, budgets=[build.budget("b", "system", generation=2)])
        assert (await gateway.chat()).status == 200


async def test_each_of_several_instances_keeps_its_share_of_a_ceiling(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        spec = {
            "budgets": [build.budget("b", "system", max_cost_gbp="0.02")],
            "prices": [price(MINI, "0", "10")],
        }
        apply(gateway, instances=4, **spec)
        assert (await gateway.chat(max_tokens=1000)).status == 503
        gateway.agent.live.confirmed("Stream", 2)
        assert (await gateway.chat(max_tokens=1000)).status == 200


async def test_a_keys_minute_is_kept_and_the_next_key_takes_over(tmp_path: Path) -> None:
    more = """
[[providers]]
name = "openai2"
base_url = "http://127.0.0.1:9/v1"
keys = [
    { name = "a", secret = "one", requests_per_minute = 1 },
    { name = "b", secret = "two", requests_per_minute = 1 },
]
[[routes]]
name = "keyed"
targets = [{ provider = "openai2", model = "m" }]
"""
    async with running(tmp_path, more=more) as gateway:
        answer = await gateway.chat("keyed")  # nothing listens there: three attempts to connect
        assert answer.status == 502
        assert [one.key for one in gateway.attempts()] == ["a", "b"]
        assert gates(gateway) == [("rate", "requests_per_minute")]
        refused = await gateway.chat("keyed")
        assert refused.status == 503
        assert 50 <= int(refused.headers["retry-after"]) <= 61


async def test_a_targets_tokens_are_counted_as_used(tmp_path: Path) -> None:
    more = """
[[routes]]
name = "limited"
targets = [{ provider = "openai", model = "gpt-4.1-mini", tokens_per_minute = 1000 }]
"""
    async with running(tmp_path, more=more) as gateway:
        gateway.conditions(output_tokens=100)
        for _ in range(2):
            # Each reserves 800 and is settled with about 110.
            assert (await gateway.chat("limited", max_tokens=780)).status == 200
        assert (await gateway.chat("limited", max_tokens=780)).status == 503
        assert gates(gateway) == [("rate", "tokens_per_minute")]
        assert (await gateway.chat("limited", max_tokens=600)).status == 200


async def test_a_policys_rate_is_in_force_at_once_and_the_next_target_serves(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as gateway:
        items = apply(
            gateway,
            policies=[build.policy("p", "openai/gpt-4.1-mini", requests_per_minute=2)],
            instances=2,
        )
        assert items["p"].verdict == "Applied"
        answers = [await gateway.chat("assistant") for _ in range(2)]
        served = [answer.headers["x-switchgear-circuit"] for answer in answers]
        assert served == ["openai/gpt-4.1-mini", "mistral/mistral-small-latest"]
        assert gates(gateway) == [("rate", "requests_per_minute")]
        bad = apply(gateway, policies=[build.policy("p", "", 2, tokens_per_minute=-1)])
        assert (bad["p"].verdict, bad["p"].field_path) == ("Rejected", "breaker.tokens_per_minute")


async def test_a_full_provider_still_takes_the_probe_of_its_breaker(tmp_path: Path) -> None:
    more = """
[[providers]]
name = "narrow"
base_url = "{url}/openai/v1"
keys = [{ name = "main", secret = "one" }]
max_concurrent = 2
[[routes]]
name = "narrow"
attempt_seconds = 60
targets = [{ provider = "narrow", model = "gpt-4.1-mini" }]
[[routes]]
name = "beside"
targets = [{ provider = "narrow", model = "gpt-4.1" }]
"""
    async with running(tmp_path, more=more) as gateway:
        apply(gateway, policies=[build.policy("p", "narrow/gpt-4.1", open_seconds=0.1)])
        gateway.fates(*[Fate.SERVER_ERROR] * 5)
        for _ in range(5):
            await gateway.chat("beside")
        gateway.fates(Fate.HANG, Fate.OK)
        held = asyncio.create_task(gateway.chat("narrow"))
        await until(lambda: gateway.openai.in_flight == 1)
        # One of two places is kept: an ordinary call finds none, the probe does.
        assert (await gateway.chat("narrow")).status == 503
        assert gates(gateway)[-1] == ("concurrency", "connections")

        live, narrow = gateway.agent.live, Circuit("narrow", "gpt-4.1")
        await until(lambda: live.probes(narrow, time.monotonic()))
        assert (await gateway.chat("beside")).status == 200
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


async def test_low_priority_is_refused_first_at_a_provider_that_fills_up(tmp_path: Path) -> None:
    more = """
[[providers]]
name = "narrow"
base_url = "{url}/openai/v1"
keys = [{ name = "main", secret = "one" }]
max_concurrent = 5
[[routes]]
name = "narrow"
attempt_seconds = 60
targets = [{ provider = "narrow", model = "gpt-4.1-mini" }]
"""
    low = {"x-switchgear-priority": "low"}
    async with running(tmp_path, more=more) as gateway:
        # Five places: one is kept for probes, and of the four others low priority has three.
        gateway.fates(*[Fate.HANG] * 3)
        held = [asyncio.create_task(gateway.chat("narrow")) for _ in range(3)]
        await until(lambda: gateway.openai.in_flight == 3)
        refused = await gateway.chat("narrow", headers=low)
        assert refused.status == 503
        assert gates(gateway) == [("concurrency", "low")]
        assert (await gateway.chat("narrow")).status == 200
        held.pop().cancel()
        await until(lambda: gateway.openai.in_flight == 2)
        assert (await gateway.chat("narrow", headers=low)).status == 200
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
