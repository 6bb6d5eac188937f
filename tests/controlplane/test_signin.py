"""Guessing passwords is slow for a stranger and never locks out the person on call."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.actions.signin import (
    ACCOUNT_TRIES,
    ADDRESS_TRIES,
    WINDOW,
    client_address,
    sign_in,
)
from controlplane.errors import Problem, Unauthenticated
from controlplane.models import SignInTries
from tests import builders

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
STRANGER = "203.0.113.9"


@pytest.fixture(autouse=True)
def people() -> None:
    builders.person("ann")
    builders.person("ben")


def attempt(
    name: str = "ann",
    password: str = builders.PASSWORD,
    address: str = "192.0.2.5",
    device: str | None = None,
    now: datetime = NOW,
) -> str:
    """'in', 'wrong', or 'wait' for a 429 with its seconds."""
    try:
        sign_in(name=name, password=password, address=address, device=device, now=now)
    except Unauthenticated:
        return "wrong"
    except Problem as problem:
        waits = problem.status == 429 and (problem.retry_after_s or 0) > 0
        return "wait" if waits else problem.code
    return "in"


def guess(times: int, name: str = "ann", **fields: str) -> list[str]:
    return [attempt(name, "guess", **({"address": STRANGER} | fields)) for _ in range(times)]


def test_an_account_takes_five_wrong_passwords() -> None:
    assert guess(ACCOUNT_TRIES + 2) == ["wrong"] * ACCOUNT_TRIES + ["wait"] * 2
    assert attempt() == "wait"


def test_the_spelling_of_the_name_gives_no_new_tries() -> None:
    guess(ACCOUNT_TRIES)
    assert attempt("ANN", "guess") == "wait"


def test_the_window_ends() -> None:
    guess(ACCOUNT_TRIES + 1)
    assert attempt(now=NOW + WINDOW - timedelta(seconds=1)) == "wait"
    assert attempt(now=NOW + WINDOW) == "in"


def test_a_browser_that_was_in_before_is_not_locked_out_by_others() -> None:
    device = sign_in(
        name="ann", password=builders.PASSWORD, address="192.0.2.5", device=None, now=NOW
    ).device
    guess(ACCOUNT_TRIES + 1)
    assert attempt(device=device) == "in"
    assert attempt(device=None) == "wait"


def test_a_known_browser_is_known_for_its_own_person_only() -> None:
    device = sign_in(
        name="ann", password=builders.PASSWORD, address="192.0.2.5", device=None, now=NOW
    ).device
    guess(ACCOUNT_TRIES, "ben")
    assert attempt("ben", device=device) == "wait"
    assert attempt("ben", device=device[:-2] + "xx") == "wait"


def test_a_known_browser_may_not_guess_for_ever() -> None:
    device = sign_in(
        name="ann", password=builders.PASSWORD, address="192.0.2.5", device=None, now=NOW
    ).device
    said = [attempt(password="guess", device=device) for _ in range(12)]
    assert said[-1] == "wait"


def test_one_address_cannot_try_every_account() -> None:
    said = [attempt(f"user-{n}", "guess", STRANGER) for n in range(60)]
    assert said[0] == "wrong"
    assert said[-1] == "wait"
    assert attempt() == "in"


def test_a_right_password_clears_the_persons_own_count() -> None:
    guess(ACCOUNT_TRIES - 1)
    assert attempt() == "in"
    assert guess(ACCOUNT_TRIES - 1) == ["wrong"] * (ACCOUNT_TRIES - 1)


def test_nothing_tells_a_wrong_name_from_a_wrong_password() -> None:
    told = []
    for name in ("ann", "nobody"):
        with pytest.raises(Unauthenticated) as caught:
            sign_in(name=name, password="guess", address=STRANGER, device=None, now=NOW)
        told.append(caught.value.detail)
    assert told[0] == told[1]


def test_odd_names_and_cookies_are_only_wrong() -> None:
    for name in ("", "a\x00b", "x" * 5000, "\u202eann"):
        assert attempt(name, "gu\x00ess", f"198.51.100.{len(name) % 250}") == "wrong"
    for device in ("", "x", "a:b:c", "\x00"):
        assert attempt("nobody", "guess", "198.51.100.251", device) in {"wrong", "wait"}


def test_an_inactive_person_stays_out() -> None:
    builders.person("gone", is_active=False)
    assert attempt("gone") == "wrong"
    assert SignInTries.objects.filter(bucket="account:gone").exists()


@pytest.mark.parametrize(
    ("remote", "forwarded", "proxies", "address"),
    [
        ("10.0.0.1", "", 0, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.1", 0, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.1", 1, "203.0.113.1"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.1", 1, "203.0.113.1"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.1, 10.0.0.2", 2, "203.0.113.1"),
        ("10.0.0.1", "203.0.113.1", 3, "203.0.113.1"),
        ("10.0.0.1", "", 1, "10.0.0.1"),
        ("10.0.0.1", " , ", 1, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.1:4711", 1, "203.0.113.1"),
        ("10.0.0.1", "[2001:db8::1]:4711", 1, "2001:db8::1"),
        ("10.0.0.1", "[2001:db8::1]", 1, "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", 1, "2001:db8::1"),
        ("10.0.0.1", "unknown", 1, "unknown"),
        ("10.0.0.1", "[]:1", 1, "[]:1"),
    ],
)
def test_the_address_is_counted_from_the_right(
    remote: str, forwarded: str, proxies: int, address: str
) -> None:
    assert client_address(remote, forwarded, proxies) == address


@pytest.mark.parametrize(
    "addresses",
    [
        [f"2001:db8:0:7::{n:x}" for n in range(1, 52)],
        [*["::ffff:203.0.113.1", "203.0.113.1"] * 25, "203.0.113.1"],
    ],
)
def test_addresses_that_one_caller_can_choose_from_are_one(addresses: list[str]) -> None:
    said = [attempt(f"guess-{n}", address=address) for n, address in enumerate(addresses)]
    assert said == ["wrong"] * ADDRESS_TRIES + ["wait"]


def test_a_neighbour_in_another_network_has_tries_of_their_own() -> None:
    for n in range(ADDRESS_TRIES + 1):
        attempt(f"guess-{n}", address=f"2001:db8:0:7::{n:x}")
    assert attempt("ben", address="2001:db8:0:8::1") == "in"
