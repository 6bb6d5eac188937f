"""A fault of a key rests that key, and only the last one says that the target is shut."""

import pytest

from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.verdict import Verdict
from gateway.config import Key
from gateway.keys import FAULT_REST_S, Keys
from tests.gateway.build import DOWN, LIMITED, SPENT, config


@pytest.fixture
def keys() -> Keys:
    return Keys(config().providers)


def name(choice: Key | Refusal | None) -> str:
    assert isinstance(choice, Key)
    return choice.name


def test_another_key_is_ready_at_once(keys: Keys) -> None:
    assert name(keys.choose("north", 0.0)) == "a"
    assert keys.rest("north", "a", SPENT, 0.0)
    assert name(keys.choose("north", 0.0)) == "b"
    assert keys.status("north", 0.0) == (1, 2, "quota_exhausted")


def test_all_resting_is_a_refusal_until_the_soonest(keys: Keys) -> None:
    keys.rest("north", "a", SPENT, 0.0)
    assert not keys.rest("north", "b", SPENT, 10.0)
    refusal = keys.choose("north", 20.0)
    assert refusal == Refusal(Gate.KEY, "quota_exhausted", FAULT_REST_S)
    assert keys.status("north", 20.0) == (0, 2, "quota_exhausted")
    assert name(keys.choose("north", FAULT_REST_S)) == "a"


@pytest.mark.parametrize(
    ("provider", "verdict", "rests"),
    [
        ("south", SPENT, True),
        ("south", LIMITED, False),  # the only key: its breaker has to see the overload
        ("north", LIMITED, True),
        ("north", DOWN, False),
    ],
)
def test_what_rests_a_key(keys: Keys, provider: str, verdict: Verdict, rests: bool) -> None:
    first = name(keys.choose(provider, 0.0))
    keys.rest(provider, first, verdict, 0.0)
    again = keys.choose(provider, 0.0)
    assert (isinstance(again, Refusal) or again is None or again.name != first) == rests


def test_a_rest_is_never_made_shorter(keys: Keys) -> None:
    keys.pace("south", "only", 50.0, 0.0)
    keys.pace("south", "only", 5.0, 1.0)
    keys.pace("south", "only", 0.0, 2.0)
    assert keys.choose("south", 49.0) == Refusal(Gate.KEY, "paced", 50.0)
    assert name(keys.choose("south", 50.0)) == "only"


def test_a_provider_without_keys_needs_none(keys: Keys) -> None:
    assert keys.choose("nobody", 0.0) is None
    assert keys.status("nobody", 0.0) is None
