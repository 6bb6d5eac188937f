"""Which of several overrides, policies or budgets is in force, and what each is about."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.circuit import Circuit
from controlplane.domain.compile import Rows, SettingRow, Target, compile_rows
from controlplane.domain.overrides import (
    OverrideMode,
    OverrideRow,
    in_words,
    lifetime_fault,
    observed,
    standing,
)
from controlplane.domain.precedence import Selection, precedence
from controlplane.domain.selectors import check_labels, parse_selector, selects

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
CIRCUIT = Circuit("openai", "gpt-4o", "eu")

# Narrowest first: each line must win over all that follow (design 4.5).
IN_ORDER = [
    (Selection(gateway="g", tenant="t", model="m", region="r", provider="p"), "ForceOpen"),
    (Selection(gateway="g", model="m", region="r", provider="p"), "ForceOpen"),
    (Selection(gateway="g", model="m"), "ObserveOnly"),
    (Selection(gateway="g", region="r", provider="p"), "ForceOpen"),
    (Selection(gateway="g", region="r"), "ForceOpen"),
    (Selection(gateway="g", provider="p"), "ForceOpen"),
    (Selection(gateway="g"), "ForceOpen"),
    (Selection(selector="tier=eu", model="m"), "ForceOpen"),
    (Selection(selector="tier=eu"), "ForceOpen"),
    (Selection(tenant="t"), "ForceOpen"),
    (Selection(model="m", provider="p"), "ForceOpen"),
    (Selection(model="m", provider="p"), "ForceClosed"),
    (Selection(model="m", provider="p"), "ObserveOnly"),
    (Selection(region="-", provider="p"), "ForceOpen"),
    (Selection(provider="p"), "ForceOpen"),
    (Selection(), "ForceOpen"),
]


def override(name: str, mode: str = "ForceOpen", **more: object) -> OverrideRow:
    selection = Selection(**{k: str(more.pop(k)) for k in list(more) if k in Selection.__slots__})
    fields: dict[str, object] = {
        "uid": name,
        "name": name,
        "generation": 1,
        "selection": selection,
        "mode": OverrideMode(mode),
        "reason": "provider is failing",
        "expires_at": NOW + timedelta(minutes=5),
    }
    return OverrideRow(**(fields | more))  # type: ignore[arg-type]


def test_the_narrowest_selection_comes_first() -> None:
    keys = [precedence(selection, "n", mode) for selection, mode in IN_ORDER]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_equal_selections_are_ordered_by_name() -> None:
    assert precedence(Selection(selector="a=1"), "a") < precedence(Selection(selector="b=1"), "b")


@pytest.mark.parametrize(
    ("selection", "covered"),
    [
        (Selection(), True),
        (Selection(provider="openai"), True),
        (Selection(provider="openai", region="eu"), True),
        (Selection(provider="openai", region="-"), False),
        (Selection(model="gpt-4o"), True),
        (Selection(provider="anthropic"), False),
        (Selection(region="us"), False),
    ],
)
def test_what_a_selection_covers(selection: Selection, covered: bool) -> None:
    assert selection.covers_circuit(CIRCUIT) is covered


def test_no_region_is_named_by_a_dash() -> None:
    assert Selection(region="-").covers_circuit(Circuit("openai", "gpt-4o"))


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_losers_are_superseded_in_any_order_of_rows(order: tuple[int, ...]) -> None:
    rows = [
        override("everything"),
        override("one-model-closed", "ForceClosed", provider="openai", model="gpt-4o"),
        override("over", expires_at=NOW),
        override("ended", ended_at=NOW - timedelta(seconds=1), gateway="g"),
    ]
    found = standing([rows[i] for i in order], CIRCUIT, NOW)
    assert found.in_force is rows[1]
    assert found.superseded == (rows[0],)


def test_the_next_takes_over_at_the_moment_of_expiry() -> None:
    narrow = override("narrow", provider="openai", expires_at=NOW + timedelta(seconds=1))
    broad = override("broad")
    assert standing([narrow, broad], CIRCUIT, NOW).in_force is narrow
    assert standing([narrow, broad], CIRCUIT, NOW + timedelta(seconds=1)).in_force is broad
    assert standing([], CIRCUIT, NOW).in_force is None


@pytest.mark.parametrize(
    ("mode", "lasts", "fault"),
    [
        ("ForceOpen", timedelta(hours=24), ""),
        ("ForceOpen", timedelta(hours=24, seconds=1), "at most 1 d"),
        ("ForceClosed", timedelta(hours=2), ""),
        ("ForceClosed", timedelta(hours=3), "at most 2 h"),
        ("ObserveOnly", timedelta(days=7), ""),
        ("ObserveOnly", timedelta(days=8), "at most 7 d"),
        ("ForceOpen", timedelta(0), "within 5 s"),
        ("ForceOpen", timedelta(seconds=-1), "within 5 s"),
    ],
)
def test_how_long_an_override_may_last(mode: str, lasts: timedelta, fault: str) -> None:
    found = lifetime_fault(OverrideMode(mode), lasts)
    assert fault in found
    assert bool(found) is bool(fault)


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (timedelta(seconds=45), "45 s"),
        (timedelta(minutes=90), "1 h 30 min"),
        (timedelta(days=7), "7 d"),
        (timedelta(days=1, hours=2, minutes=3), "1 d 2 h"),
        (timedelta(seconds=-5), "0 s"),
    ],
)
def test_durations_in_words(duration: timedelta, words: str) -> None:
    assert in_words(duration) == words


@pytest.mark.parametrize(
    ("selector", "labels", "found"),
    [
        ("region=eu", {"region": "eu"}, True),
        ("region==eu", {"region": "eu"}, True),
        ("region=eu,tier!=canary", {"region": "eu"}, True),
        ("region=eu,tier!=canary", {"region": "eu", "tier": "canary"}, False),
        ("spot", {"spot": ""}, True),
        ("spot", {}, False),
        (" region = eu , spot ", {"region": "eu", "spot": "yes"}, True),
        ("acme.com/team=core", {"acme.com/team": "core"}, True),
        ("region=", {"region": ""}, True),
    ],
)
def test_selectors(selector: str, labels: dict[str, str], found: bool) -> None:
    assert selects(selector, labels) is found


@pytest.mark.parametrize("text", ["", ",", "a=b,", "=b", "a in (b)", "a=b c", "a=\x00", "-a=b"])
def test_a_selector_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"write key|a value is"):
        parse_selector(text)


def test_a_label_that_no_selector_could_name_is_an_error() -> None:
    check_labels({"region": "eu-1"})
    with pytest.raises(ValueError, match="a value"):
        check_labels({"region": "eu 1"})


@given(st.permutations(range(5)))
def test_compiling_does_not_depend_on_the_order_of_rows(order: list[int]) -> None:
    policies = [
        SettingRow("1", "default", 1, Selection(), {}),
        SettingRow("2", "eu", 1, Selection(selector="tier=eu"), {}),
        SettingRow("3", "other", 1, Selection(gateway="other"), {}),
        SettingRow("4", "mine", 1, Selection(gateway="g"), {}),
        SettingRow("5", "us", 1, Selection(selector="tier=us"), {}),
    ]
    rows = Rows(policies=tuple(policies[i] for i in order))
    compiled = compile_rows(rows, Target("g", {"tier": "eu"}))
    assert [row.name for row in compiled.policies] == ["mine", "eu", "default"]


@pytest.mark.parametrize(
    ("state", "mode", "ramp", "met"),
    [
        ("Closed", "Auto", 100, "Closed"),
        ("Closed", "Auto", 40, "Ramping"),
        ("Open", "Auto", 40, "Open"),
        ("HalfOpen", "Auto", 100, "HalfOpen"),
        ("Closed", "ForceOpen", 100, "Open"),
        ("Open", "ForceClosed", 100, "Closed"),
        ("Open", "ObserveOnly", 40, "Closed"),
    ],
)
def test_what_a_call_meets_is_the_hand_before_the_breaker(
    state: str, mode: str, ramp: int, met: str
) -> None:
    assert observed(state, mode, ramp) == met
