"""What the wall says of real rows: order, counts, words; the silent keep no colour."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from msgspec.structs import replace

from controlplane.domain.breaker_policy import Cause
from controlplane.models import Circuit, Instance
from controlplane.reports import wall
from controlplane.reports.wall_rows import Peak, Wall
from dashboard.board import Board, compose, density
from dashboard.cards import Fields, iso
from dashboard.why import CAUSES, cause_words
from tests import builders

pytestmark = pytest.mark.django_db


def board() -> Board:
    return compose(wall.read())


def card_of(found: Board, circuit: Circuit) -> Fields:
    return found.cards[f"c{circuit.pk}"]


def three_instances() -> list[Instance]:
    gateway = builders.gateway("chat")
    return [builders.instance(gateway, f"chat/{number}") for number in range(3)]


def test_a_healthy_circuit_is_a_tile() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    found = board()
    assert found.attention == ()
    assert card_of(found, circuit)["kind"] == "tile"
    assert [group.provider for group in found.healthy] == ["openai"]


def test_open_is_counted_over_instances_in_contact() -> None:
    instances = three_instances()
    circuit = builders.circuit()
    silent = builders.instance(instances[0].gateway, "chat/9", last_seen_at=builders.ago(40))
    for one, state in zip([*instances, silent], ["Open", "Open", "Closed", "Open"], strict=True):
        builders.circuit_state(one, circuit, state)
    card = card_of(board(), circuit)
    assert (card["state"], card["count"]) == ("Open", "2/3")
    assert card["instances"] == "3 InSync · 1 unreachable"


def test_a_circuit_of_silent_instances_alone_is_unknown() -> None:
    gateway = builders.gateway("chat")
    silent = builders.instance(gateway, last_seen_at=builders.ago(90))
    circuit = builders.circuit()
    builders.circuit_state(silent, circuit, "Closed")
    found = board()
    card = card_of(found, circuit)
    assert card["state"] == "unknown"
    assert card["state_tone"] == "unk"
    assert card["count"] == "(was Closed at"
    assert card["heard_at"] is not None
    assert found.strip["unknown"] == "1"
    assert found.strip["closed"] == "0"


def test_the_rank_goes_from_not_in_force_down_to_observed() -> None:
    [one, *_] = three_instances()
    models = ["rejected", "open", "half", "forced", "failing", "slow", "observed", "well"]
    circuits = {name: builders.circuit(model=name) for name in models}
    states = {"open": "Open", "half": "HalfOpen", "forced": "Open"}
    for name, circuit in circuits.items():
        builders.circuit_state(one, circuit, states.get(name, "Closed"))
    builders.rollup(one.gateway, circuits["failing"], attempts=100, failed=30)
    builders.derived(circuits["slow"], {70_000: 30})
    for name, mode in (
        ("rejected", "ForceOpen"),
        ("forced", "ForceOpen"),
        ("observed", "ObserveOnly"),
    ):
        hand = builders.override(mode, provider="openai", model=name)
        builders.delivery(one, hand, "Rejected" if name == "rejected" else "Applied")
        if name != "rejected":
            state = states.get(name, "Closed")
            builders.circuit_state(
                one, circuits[name], state, mode=mode, override_uid=str(hand.uid)
            )
    found = board()
    names = {f"c{circuit.pk}": name for name, circuit in circuits.items()}
    assert [names[key] for key in found.attention] == models[:-1]


def test_a_slow_circuit_says_so_by_its_own_policy() -> None:
    [one, *_] = three_instances()
    builders.breaker_policy(spec={"slow_call_seconds": 10, "slow_ratio": None})
    builders.breaker_policy("patient", model="patient", spec={"slow_call_seconds": 30})
    builders.breaker_policy(
        "strict", model="strict", spec={"slow_call_seconds": 12, "slow_ratio": 0.5}
    )
    circuits = [builders.circuit(model=name) for name in ("patient", "slow", "strict")]
    for circuit in circuits:
        builders.circuit_state(one, circuit)
        builders.derived(circuit, {800: 270, 12_200: 90})
    found = board()
    patient, slow, strict = (card_of(found, circuit) for circuit in circuits)
    assert found.attention == (slow["id"], strict["id"])
    assert patient["kind"] == "tile"
    assert (slow["state"], slow["count"], slow["edge"]) == ("Closed", "slow", "half")
    assert (slow["why_strong"], slow["why_glyph"]) == ("Slow:", "#g-clock")
    assert slow["why"] == "p95 12 s, 25% of 360 calls ≥ 10 s"
    assert strict["why"] == "p95 12 s, 25% of 360 calls ≥ 12 s"


def test_a_handful_of_slow_calls_says_nothing_and_neither_do_old_ones() -> None:
    [one, *_] = three_instances()
    few, old = builders.circuit(model="few"), builders.circuit(model="old")
    for circuit in (few, old):
        builders.circuit_state(one, circuit)
    builders.derived(few, {70_000: 19})
    builders.derived(old, {70_000: 400})
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE rollup_circuit_minute SET minute = minute - interval '10 minutes'"
            " WHERE circuit_id = %s",
            [old.pk],
        )
    assert board().attention == ()


def test_within_a_rank_the_most_wasted_comes_first() -> None:
    [one, *_] = three_instances()
    cheap, dear = builders.circuit(model="a"), builders.circuit(model="b")
    for circuit, wasted in ((cheap, "0.1"), (dear, "2")):
        builders.circuit_state(one, circuit, "Open")
        builders.rollup(one.gateway, circuit, attempts=9, wasted_gbp=Decimal(wasted))
    assert board().attention == (f"c{dear.pk}", f"c{cheap.pk}")


def test_an_override_that_one_instance_rejects_is_named_with_its_reason() -> None:
    instances = three_instances()
    circuit = builders.circuit()
    hand = builders.override(provider="openai")
    for one in instances[:2]:
        builders.circuit_state(one, circuit, "Open", mode="ForceOpen", override_uid=str(hand.uid))
        builders.delivery(one, hand)
    builders.circuit_state(instances[2], circuit, "Closed")
    builders.delivery(instances[2], hand, "Rejected", reason="LocalFloorViolated")
    card = card_of(board(), circuit)
    assert card["instances"] == "2 enforced · 1 rejected"
    assert (card["desired"], card["seam"]) == ("ForceOpen", "differs")
    assert (card["why_strong"], card["why"]) == ("Rejected", "by chat/2: LocalFloorViolated")
    assert card["cell_reject"]
    assert card["ends_at"] is not None


def test_an_override_that_was_only_recorded_is_not_enforced() -> None:
    instances = three_instances()
    circuit = builders.circuit()
    builders.override(provider="openai")
    for one in instances:
        builders.circuit_state(one, circuit, "Closed")
    card = card_of(board(), circuit)
    assert card["instances"] == "3 applying"
    assert card["seam"] == "differs"


def test_an_override_of_another_gateway_does_not_show_here() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    builders.override(provider="openai", gateway="batch")
    assert card_of(board(), circuit)["kind"] == "tile"


def test_under_observe_only_calls_pass_and_what_would_be_is_said() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    hand = builders.override("ObserveOnly", provider="openai", created_by="oncall", reason="trial")
    builders.delivery(one, hand)
    builders.circuit_state(
        one, circuit, "Open", mode="ObserveOnly", override_uid=str(hand.uid), would_be="Open"
    )
    found = board()
    card = card_of(found, circuit)
    assert (card["desired"], card["state"], card["seam"]) == ("ObserveOnly", "Closed", None)
    assert (card["why_strong"], card["why"]) == (
        "would have refused 0 calls",
        "in the last 15 min, would be Open · oncall: trial",
    )
    assert card["lane_open"] == ""
    assert found.strip["open"] is None


def test_a_tile_without_traffic_knows_no_figures() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    tile = card_of(board(), circuit)
    assert (tile["rate"], tile["fail"], tile["retry_pct"], tile["spend"]) == ("–", "–", "–", "–")


def test_what_is_unpriced_is_said_and_not_shown_as_zero() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    builders.rollup(one.gateway, circuit, attempts=31, unpriced=31)
    assert card_of(board(), circuit)["spend"] == "– 31 unpriced"


def test_the_strip_adds_up() -> None:
    instances = three_instances()
    for model, state in (("a", "Open"), ("b", "Closed"), ("c", "Closed")):
        circuit = builders.circuit(model=model)
        builders.circuit_state(instances[0], circuit, state)
        builders.rollup(
            instances[0].gateway, circuit, attempts=60, firsts=50, retries=5,
            cost_gbp=Decimal("1.5"), wasted_gbp=Decimal("0.25"),
        )  # fmt: skip
    builders.retry_budget("system", "system")
    builders.budget_state(instances[0], "system/", balance=30, spent=10)
    builders.budget_state(instances[1], "tenant/a", balance=0)
    strip = board().strip
    assert (strip["open"], strip["closed"]) == ("1", "2")
    assert (strip["spend"], strip["wasted"]) == ("£4.50", "75p")
    assert strip["retry_ratio"] == "10.0% of 10% retry"
    assert (strip["balance"], strip["balance_of"]) == ("30", "of 40")
    assert strip["budgets_note"] == "1 of 2 budgets at 0 · refused 0/s"


def test_of_no_circuit_at_all_nothing_is_said_to_be_well() -> None:
    strip = board().strip
    assert (strip["closed"], strip["none_known"]) == (None, "–")
    assert strip["retry_ratio"] == "– retry"


def test_a_lane_is_not_drawn_after_an_instance_fell_silent() -> None:
    gateway = builders.gateway("chat")
    silent = builders.instance(gateway, last_seen_at=builders.ago(300))
    circuit = builders.circuit()
    builders.circuit_state(silent, circuit, "Open", since=builders.ago(800), cause="FailureRatio")
    card = card_of(board(), circuit)
    assert card["lane_gap"]
    assert card["lane_open"]
    assert card["lane_open"] != card["lane_gap"]


@pytest.mark.parametrize(
    ("attention", "circuits", "name"),
    [
        (5, 48, "roomy"),
        (6, 48, "compact"),
        (0, 60, "compact"),
        (0, 61, "dense"),
        (99, 200, "dense"),
    ],
)
def test_density(attention: int, circuits: int, name: str) -> None:
    assert density(attention, circuits) == name


def test_the_soonest_probe_of_the_open_breakers_is_next() -> None:
    instances = three_instances()
    circuit = builders.circuit()
    soon, later = builders.now() + timedelta(seconds=5), builders.now() + timedelta(seconds=50)
    for one, at in zip(instances, (later, soon, None), strict=True):
        builders.circuit_state(one, circuit, "Open", next_probe_at=at)
    probe = card_of(board(), circuit)["probe_at"]
    assert probe == soon.isoformat(timespec="milliseconds")


def test_every_cause_of_a_breaker_has_words() -> None:
    assert {cause.value for cause in Cause} == CAUSES.keys()


def test_a_sibling_is_followed_into_closed_too() -> None:
    """A table of transitions said of ``HalfOpen → Closed`` that a worker of the host opened."""
    assert cause_words("Sibling", "Open") == "a worker of the same host opened"
    assert cause_words("Sibling", "Closed") == "a worker of the same host closed"
    assert cause_words("Sibling", "Ramping") == "a worker of the same host closed"
    assert cause_words("ProbeFailed", "Open") == "its probe failed"
    assert cause_words("Unheard", "Open") == "Unheard"


def test_what_follows_a_whole_clause_comes_after_a_colon() -> None:
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit, "Open", cause="ProbeFailed")
    builders.rollup(one.gateway, circuit, attempts=3, firsts=3, failed=3)
    builders.attempts(one, circuit, 3, reason="overloaded")
    card = card_of(board(), circuit)
    assert (card["why_strong"], card["why"]) == ("Its probe failed:", "overloaded")


def test_a_forced_circuit_is_open_since_the_hand_not_since_its_process_began() -> None:
    [one, two, *_] = three_instances()
    circuit = builders.circuit()
    hand = builders.override(provider="openai", created_at=builders.ago(90))
    took = builders.ago(88)
    for instance in (one, two):
        builders.circuit_state(
            instance, circuit, "Closed", since=builders.ago(7200), mode="ForceOpen",
            override_uid=str(hand.uid),
        )  # fmt: skip
        builders.delivery(instance, hand, acknowledged_at=took)
    card = card_of(board(), circuit)
    assert (card["state"], card["since_at"]) == ("Open", iso(took))


def test_a_card_names_the_gateway_with_most_of_its_trouble() -> None:
    chat, batch = builders.gateway("chat"), builders.gateway("batch")
    circuit = builders.circuit()
    for number in range(3):
        builders.circuit_state(builders.instance(chat, f"chat/{number}"), circuit)
    builders.circuit_state(builders.instance(batch, "batch/0"), circuit, "Open")
    assert card_of(board(), circuit)["gateway"] == "batch"


def test_the_sick_are_counted_by_provider_each_a_link_to_it_alone() -> None:
    [one, *_] = three_instances()
    builders.circuit_state(one, builders.circuit("openai", "a"), "Open")
    builders.circuit_state(one, builders.circuit("openai", "b"), "Open")
    builders.circuit_state(one, builders.circuit("my own", "c"), "Open")
    titles = board().titles
    assert (titles["provider0"], titles["provider0_href"]) == ("openai 2", "/?q=provider%3Aopenai")
    assert (titles["provider1"], titles["provider1_href"]) == ("my own 1", "/?q=my+own")
    assert titles["provider2"] is None


@pytest.mark.parametrize(
    ("most", "words", "dated"),
    [("4.25", "peak £4.25/min at", True), ("0.5", "the most of the last hour", False)],
)
def test_a_peak_is_never_less_than_what_is_wasted_now(most: str, words: str, dated: bool) -> None:
    """The sliding minute may be worse than every whole one."""
    [one, *_] = three_instances()
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    builders.rollup(one.gateway, circuit, attempts=9, wasted_gbp=Decimal(2))
    found = wall.read()
    assert found.trail.peak is not None
    peak = Peak(found.trail.peak.minute, Decimal(most))
    strip = compose(Wall(found.now, replace(found.trail, peak=peak))).strip
    assert (strip["peak"], strip["peak_at"] is not None) == (words, dated)
