"""The brownout replay: the calibrated column holds, policies are compared fairly, runs repeat."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controlplane.domain.breaker import State
from controlplane.domain.verdict import Kind
from gateway.brownout import __main__ as command
from gateway.brownout import calibration, provider
from gateway.brownout.calibration import TOLERANCE, calibrate, misses
from gateway.brownout.model import CALIBRATED, PUBLISHED, Model
from gateway.brownout.policies import ALWAYS, DEFAULTS, POLICIES, Policy
from gateway.brownout.replay import replay
from gateway.brownout.tally import Tally, percentile

TENTH = Model(scale=0.1)
SMALL = Model(scale=0.03)
TINY = Model(scale=0.004)


@pytest.fixture(scope="module")
def always() -> Tally:
    return replay(TENTH, ALWAYS)


def test_three_attempts_always_give_what_was_published(always):
    # Breakers and budgets remember, so only this policy is the same at a tenth of the traffic.
    assert {name: abs(miss) < TOLERANCE for name, miss in misses(always.column()).items()} == {
        "wasted": True,
        "p99_s": True,
        "errors": True,
        "load": True,
    }


def test_the_default_policy_keeps_load_waste_and_errors_down(always):
    ours, first = replay(TENTH, DEFAULTS).column(), always.column()
    assert ours.wasted <= 0.12 * first.wasted
    assert ours.errors <= first.errors / 32
    assert ours.load <= 0.4


def test_every_policy_sees_the_same_ramp():
    model = Model()
    assert model.error_rate(model.failing, -30.0) == model.base_error_rate
    assert model.error_rate(model.failing, 1200.0) == pytest.approx(0.43)
    assert model.error_rate(model.failing, 2400.0) == model.error_rate(model.failing, 9e9) == 0.85
    assert model.error_rate(model.circuits[1], 2400.0) == model.base_error_rate


def test_two_hundred_sessions_are_open_when_nothing_fails():
    model = Model()
    session_s = model.free.turns * (model.mean_call_s + model.pause_s)
    assert model.sessions_per_s * session_s == pytest.approx(200)


def test_the_first_column_never_leaves_the_failing_provider(always):
    assert always.fallbacks == 0
    assert always.firsts == always.requests
    assert always.retries <= 2 * always.requests
    assert always.transitions == []


def test_a_budget_holds_retries_to_a_tenth_of_firsts_and_its_floor():
    tally = replay(SMALL, POLICIES["budget"])
    floor = 0.1 * (SMALL.ramp_s + SMALL.warm_up_s)
    assert 0 < tally.retries <= 0.1 * tally.firsts + floor


def test_a_breaker_opens_and_probes_only_where_calls_fail():
    tally = replay(SMALL, POLICIES["breaker"])
    assert {circuit for circuit, step in tally.transitions if step.to_state is State.OPEN} == {
        SMALL.failing
    }
    probed = [step for _, step in tally.transitions if step.to_state is State.HALF_OPEN]
    assert len(probed) > 5


@pytest.mark.parametrize("policy", POLICIES.values(), ids=str)
def test_the_same_seed_gives_the_same_run(policy: Policy):
    told = replay(TINY, policy).told()
    assert replay(TINY, policy).told() == told
    assert replay(replace(TINY, seed=2), policy).told() != told


def test_a_run_does_not_depend_on_how_many_processes_run_it():
    names = ["always", "defaults"]
    alone, together = command.run(TINY, names, 1), command.run(TINY, names, 2)
    assert {n: t.told() for n, t in alone.items()} == {n: t.told() for n, t in together.items()}


def test_minutes_add_up_to_the_load(always):
    last = always.minutes[-10:]
    mean = sum(minute.attempts for minute in last) / 10
    assert always.column().load == pytest.approx(mean / TENTH.normal_per_minute)
    assert len(always.minutes) == 40


@pytest.mark.parametrize("end", [provider.REJECTED, provider.HUNG, provider.BROKEN])
def test_a_failed_call_may_be_sent_again_and_counts(end):
    # Nothing was streamed: even of a call that broke off the caller has seen nothing.
    assert end.kind is Kind.RETRYABLE
    assert (end.retryable, end.counts_against_breaker) == (True, True)
    assert provider.GOOD.ok


def test_calibration_looks_at_no_other_policy(monkeypatch):
    run = []

    def noting(model: Model, policy: Policy) -> Tally:
        run.append(policy)
        return replay(model, policy)

    monkeypatch.setattr(calibration, "replay", noting)
    first = calibrate(TINY)
    assert set(run) == {ALWAYS}
    assert calibrate(TINY) == first
    # Even at 400 sessions it finds its way to the same region.
    assert first.turns == pytest.approx(CALIBRATED.turns, rel=0.35)
    assert first.breaks == pytest.approx(CALIBRATED.breaks, rel=0.5)


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan")])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        Model(scale=scale)


def test_a_percentile_is_the_nearest_rank():
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert percentile([3.0], 0.99) == 3.0


def test_the_command_prints_the_published_figures_beside_ours(capsys):
    assert command.main(["--scale", "0.004", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "three attempts, always" in out
    assert f"{PUBLISHED['defaults'].wasted:,.0f}" in out
    assert out.count("against three attempts, always") == 4


def test_the_command_tells_minutes_and_transitions_as_json(capsys):
    arguments = ["--json", "--policy", "always", "--policy", "defaults"]
    assert command.main([*arguments, "--scale", "0.02", "--jobs", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["policies"]) == ["always", "defaults"]
    ours = told["policies"]["defaults"]
    assert set(ours["over_always"]) == set(ours["figures"]) == set(told["calibration_misses"])
    assert ours["transitions"][0].keys() == {"circuit", "at_s", "from", "to", "cause"}
    assert sum(minute["requests"] for minute in ours["minutes"]) <= ours["requests"]


@pytest.mark.parametrize("wrong", [["--policy", "none"], ["--scale", "0"]])
def test_the_command_refuses_what_it_does_not_know(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(wrong)
    assert ended.value.code == 2
    assert wrong[0].strip("-") in capsys.readouterr().err
