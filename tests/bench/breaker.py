"""One call through a closed breaker, and one refused by an open one; peers where installed.

Peers are imported from ``BENCH_PEERS``: a virtual environment or a folder of packages that holds
pybreaker, circuitbreaker or purgatory-circuitbreaker. Ours reads the clock for every call, as
theirs do; the call itself does nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from controlplane.domain.breaker import Breaker, BreakerPolicy, Mode, Outcome
from controlplane.domain.gate import Refusal
from tests.bench.figures import Figure, interleaved, medians, per_call_us, say

CALLS = 50_000
ROUNDS = 9
SUCCESS = Outcome.SUCCESS
POLICY = BreakerPolicy(failure_ratio=500, slow_ratio=500)
"""With every rule: consecutive failures, and both ratios over a window of 60 s."""

Run = Callable[[int], None]


def measure() -> Iterator[Figure]:
    """Pair and refusal: ours, then each peer's own and the ratio to it."""
    _add_peers_to_path()
    subjects = {"switchgear": (ours_closed, ours_open)}
    for name, build in {
        "pybreaker": _pybreaker,
        "circuitbreaker": _circuitbreaker,
        "purgatory": _purgatory,
    }.items():
        try:
            subjects[name] = build()
        except ImportError:
            say(f"{name} is not installed here; point BENCH_PEERS to where it is")
    for place, what in enumerate(("pair", "refusal")):
        runs = {name: both[place] for name, both in subjects.items()}
        timed = {name: lambda run=run: per_call_us(run, CALLS) for name, run in runs.items()}
        results = medians(interleaved(timed, ROUNDS))
        mine = results.pop("switchgear")
        yield Figure(f"breaker.{what}", mine, "us")
        for name, theirs in results.items():
            yield Figure(f"breaker.{what}.{name}", theirs, "us")
            yield Figure(f"breaker.{what}", mine, "us", f"{name} {_version(name)}", mine / theirs)


def nothing() -> None:
    """The call that is protected."""


def ours_closed(calls: int) -> None:
    """Permit, call, record."""
    clock = time.monotonic
    breaker = Breaker(POLICY, clock())
    for _ in range(calls):
        permit = breaker.admit(clock())
        assert not isinstance(permit, Refusal)
        nothing()
        breaker.record(permit, SUCCESS, clock())


def ours_open(calls: int) -> None:
    """A refusal."""
    clock = time.monotonic
    breaker = Breaker(POLICY, clock())
    breaker.set_mode(Mode.FORCE_OPEN, clock())
    for _ in range(calls):
        assert isinstance(breaker.admit(clock()), Refusal)


def _pybreaker() -> tuple[Run, Run]:
    library = importlib.import_module("pybreaker")

    def closed(calls: int) -> None:
        breaker = library.CircuitBreaker(fail_max=5, reset_timeout=600)
        for _ in range(calls):
            breaker.call(nothing)

    def shut(calls: int) -> None:
        breaker = library.CircuitBreaker(fail_max=5, reset_timeout=600)
        breaker.open()
        _refused(lambda: breaker.call(nothing), library.CircuitBreakerError, calls)

    return closed, shut


def _circuitbreaker() -> tuple[Run, Run]:
    library = importlib.import_module("circuitbreaker")

    def closed(calls: int) -> None:
        breaker = library.CircuitBreaker(failure_threshold=5, recovery_timeout=600)
        call = breaker.decorate(nothing)
        for _ in range(calls):
            call()

    def shut(calls: int) -> None:
        breaker = library.CircuitBreaker(failure_threshold=1, recovery_timeout=600)
        _fail_once(breaker.decorate(_raise))
        call = breaker.decorate(nothing)
        _refused(call, library.CircuitBreakerError, calls)

    return closed, shut


def _purgatory() -> tuple[Run, Run]:
    library = importlib.import_module("purgatory")
    opened = importlib.import_module("purgatory.domain.model").OpenedState

    def breaker_of(threshold: int):
        factory = library.SyncCircuitBreakerFactory(default_threshold=threshold, default_ttl=600)
        return factory.get_breaker("peer")

    def closed(calls: int) -> None:
        breaker = breaker_of(5)
        for _ in range(calls):
            with breaker:
                nothing()

    def guarded(breaker, call: Callable[[], None]) -> None:
        with breaker:
            call()

    def shut(calls: int) -> None:
        breaker = breaker_of(1)
        _fail_once(lambda: guarded(breaker, _raise))
        _refused(lambda: guarded(breaker, nothing), opened, calls)

    return closed, shut


def _refused(call: Callable[[], None], error: type[BaseException], calls: int) -> None:
    refused = 0
    for _ in range(calls):
        try:
            call()
        except error:
            refused += 1
    if refused != calls:
        raise RuntimeError(f"{calls - refused} of {calls} calls were let through")


def _raise() -> None:
    raise OSError("made to fail")


def _fail_once(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError:
        return


def _version(name: str) -> str:
    return version({"purgatory": "purgatory-circuitbreaker"}.get(name, name))


def _add_peers_to_path() -> None:
    folder = os.environ.get("BENCH_PEERS")
    if not folder:
        return
    inside = sorted(Path(folder).glob("lib/python*/site-packages"))
    for path in map(str, inside or [Path(folder)]):
        if path not in sys.path:
            sys.path.append(path)
