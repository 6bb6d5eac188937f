"""Run a ``breaker_scenarios`` case through the real breaker, rest and retry budget.

Invariant: an operation, a setting or a reason that this adapter does not know is an error; nothing
of a case is left out. ``t`` is monotonic seconds, handed on as ``now``: as the exact number that
the case has written, since 0.1 + 0.2 in floats is not the 0.3 of another step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from controlplane.domain.breaker import Breaker, BreakerPolicy, Mode, Outcome, Permit, State
from controlplane.domain.budget import BudgetPolicy, Level
from controlplane.domain.budgets import Budgets
from controlplane.domain.classify import Observation, classify
from controlplane.domain.classify.lookup import BY_STATUS
from controlplane.domain.classify.rules import RULES
from controlplane.domain.gate import Refusal
from controlplane.domain.rest import Rest
from controlplane.domain.verdict import Scope, Verdict

STATES = {State.CLOSED: "closed", State.OPEN: "open", State.HALF_OPEN: "half_open"}
MODES = {
    Mode.FORCE_OPEN: "forced_open",
    Mode.FORCE_CLOSED: "forced_closed",
}
FORCE = {
    "open": Mode.FORCE_OPEN,
    "closed": Mode.FORCE_CLOSED,
    "observe": Mode.OBSERVE_ONLY,
    "observe_only": Mode.OBSERVE_ONLY,
    "auto": Mode.AUTO,
}
OUTCOMES = {
    "success": Outcome.SUCCESS,
    "failure": Outcome.FAILURE,
    "cancel": Outcome.NEUTRAL,
    "ignore": Outcome.NEUTRAL,
}
NO_BURST_LIMIT = 10**6

NOT_ASSERTED = {"invariants": "prose about the whole run; the property tests hold them"}

# What the cases call a reason that the classifier calls otherwise.
ALIASES = {
    "success": "ok",
    "billing": "quota_exhausted",
    "model_retired": "model_not_found",
    "bad_request": "invalid_request",
    "content_policy": "content_filtered",
    "failure": "server_error",
    "authentication": "auth",
    "unauthorized": "auth",
    "forbidden": "permission",
    "quota": "quota_exhausted",
    "network": "connect",
    "connection_error": "connect",
    "cancelled": "client_cancelled",
}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """The states and answers of the product after each step."""
    script = SCRIPTS[case["input"]["script"]](dict(case["input"]["config"]))
    after = [
        script(exact(step["t"]), step["op"], step.get("args") or {})
        for step in case["input"]["steps"]
    ]
    last = after[-1].get("state") if after else None
    return {"after": after, "final_state": last}


def exact(number: float | str) -> Any:
    """A number of a case (a fraction may be text: ``1/3``), for code that is typed for floats."""
    return Fraction(str(number))


def per_mille(ratio: float | str) -> Any:
    """A ratio in thousandths, as whole as it is: a third is no whole number of them."""
    thousandths = exact(ratio) * 1000
    return int(thousandths) if thousandths.denominator == 1 else thousandths


def breaker_script(config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Script ``breaker``: the README's rules as a policy without growth and without ramp."""
    policy = breaker_policy(config)
    breaker = Breaker(policy, 0.0)
    permits: dict[str, Permit] = {}
    override: tuple[Mode, float | None] = (Mode.AUTO, None)

    def step(t: float, op: str, args: dict[str, Any]) -> dict[str, Any]:
        nonlocal breaker, override
        result: dict[str, Any] = {}
        match op:
            case "acquire":
                answer = breaker.admit(t)
                result["allowed"] = not isinstance(answer, Refusal)
                if not isinstance(answer, Refusal):
                    permits[args.get("call", "")] = answer
            case "success" | "failure" | "cancel" | "ignore":
                if args.get("call", "") in permits:
                    breaker.record(permits[args.get("call", "")], OUTCOMES[op], t)
            case "force":
                ttl = args.get("ttl_s")
                wanted = next(args[name] for name in ("to", "mode", "state") if name in args)
                mode = FORCE[wanted.removeprefix("forced_").removeprefix("force_")]
                override = (mode, None if ttl is None else t + exact(ttl))
                breaker.set_mode(override[0], t, override[1])
            case "clear_force":
                override = (Mode.AUTO, None)
                breaker.set_mode(Mode.AUTO, t)
            case "reset":
                breaker.reset(t)
            case "restart":
                # A new process: no counts, no permits; the override comes from the saved config.
                breaker = Breaker(policy, t)
                breaker.set_mode(override[0], t, override[1])
                permits.clear()
            case "wall_clock_jump" | "observe":
                breaker.tick(t)
            case _:
                raise ValueError(f"unknown operation {op!r}")
        seen = breaker.snapshot(t)
        result["state"] = MODES.get(seen.mode) or STATES[seen.state]
        return result

    return step


def breaker_policy(config: dict[str, Any]) -> BreakerPolicy:
    """The case's settings, all of them, as a policy."""
    consecutive = config.pop("consecutive", None)
    by_ratio = per_mille(config.pop("threshold", 0.5))
    open_s = exact(config.pop("open_s", 30))
    window_s = config.pop("window_s", None)
    policy = BreakerPolicy(
        consecutive_failures=consecutive,
        failure_ratio=None if consecutive else by_ratio,
        minimum_calls=config.pop("min_calls", 1),
        window_calls=None if window_s else config.pop("size", 100),
        window_seconds=exact(window_s or 60),
        open_seconds=open_s,
        open_seconds_cap=open_s,
        half_open_probes=config.pop("half_open_max", 1),
        close_after=config.pop("half_open_successes", 1),
        probe_lease_seconds=exact(config.pop("probe_lease_s", 10**9)),
        half_open_max_seconds=exact(config.pop("half_open_max_s", 10**9)),
        ramp_shares=(),
    )
    refuse_leftovers(config)
    return policy


def cooldown_script(config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Script ``cooldown``: the rest of each target after a rate limit."""
    default_s = exact(config.pop("default_cooldown_s", 30))
    refuse_leftovers(config)
    rests: dict[str, Rest] = {}

    def step(t: float, op: str, args: dict[str, Any]) -> dict[str, Any]:
        rest = rests.setdefault(args["target"], Rest())
        match op:
            case "rate_limited":
                hint = args.get("retry_after_s")
                rest.extend(t, default_s if hint is None else exact(hint), "rate_limited")
                return {}
            case "available" | "observe":
                return {"available": rest.available(t)}
            case "success":
                # A call that went well before the rest ends does not end it.
                return {"available": rest.available(t)}
        raise ValueError(f"unknown operation {op!r}")

    return step


def scoped_script(config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Script ``scoped``: one breaker a circuit, one rest a key; a fault touches its scope only."""
    policy = breaker_policy(config)
    breakers: dict[tuple[str, ...], Breaker] = {}
    rests: dict[tuple[str, str], Rest] = {}

    def step(t: float, op: str, args: dict[str, Any]) -> dict[str, Any]:
        circuit = (args["provider"], args.get("model", ""), args.get("region", ""))
        breaker = breakers.setdefault(circuit, Breaker(policy, 0.0))
        rest = rests.setdefault((args["provider"], args.get("key", "")), Rest())
        answer = breaker.admit(t)
        allowed = not isinstance(answer, Refusal)
        match op:
            case "outcome":
                verdict = verdict_for(args["result"], args.get("retry_after_s"))
                if not isinstance(answer, Refusal):
                    breaker.record(answer, verdict, t)
                if verdict.scope is Scope.KEY and not verdict.ok and "key" in args:
                    rest.extend(t, verdict.retry_after_s or policy.open_seconds, verdict.reason)
                return {}
            case "allowed":
                if not isinstance(answer, Refusal):
                    breaker.record(answer, Outcome.NEUTRAL, t)
                return {"allowed": allowed and rest.available(t)}
        raise ValueError(f"unknown operation {op!r}")

    return step


def verdict_for(reason: str, retry_after_s: float | None) -> Verdict:
    """A verdict with that reason, as the classifier would give it."""
    reason = ALIASES.get(reason, reason)
    if status := re.fullmatch(r"(?:http_?)?([345]\d\d)", reason):
        reason = BY_STATUS.get(int(status[1]), "server_error")
    if reason not in RULES:
        reason = _by_code(reason)
    rule = RULES[reason]
    return Verdict(rule.kind, reason, rule.retryable, rule.counts, rule.scope, retry_after_s)


def _by_code(code: str) -> str:
    """What the classifier calls a provider's code. Raises ``KeyError`` for one unknown to it."""
    body = {"error": {"code": code, "type": code}}
    verdict = classify(
        Observation("openai", datetime(2026, 1, 1, tzinfo=UTC), status=400, body=body)
    )
    if verdict.reason == "invalid_request":
        raise KeyError(f"no reason is called {code!r}")
    return verdict.reason


def retry_budget_script(config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Script ``retry_budget``: one bucket; ``reserve`` is the floor of the whole window."""
    window_s = exact(config.pop("ttl_s"))
    policy = BudgetPolicy(
        ratio_per_mille=per_mille(config.pop("ratio")),
        min_per_second=exact(config.pop("reserve", 0)) / window_s,
        window_seconds=window_s,
        burst=NO_BURST_LIMIT,
    )
    refuse_leftovers(config)
    keys = ((Level.SYSTEM, ""),)
    budgets = Budgets(lambda level, subject: policy)

    def step(t: float, op: str, args: dict[str, Any]) -> dict[str, Any]:
        count = args.get("n", 1)
        match op:
            case "request":
                for _ in range(count):
                    budgets.earn(keys, t)
                return {}
            case "try_retry":
                return {"granted": sum(budgets.ask(keys, t) is None for _ in range(count))}
        raise ValueError(f"unknown operation {op!r}")

    return step


def refuse_leftovers(config: dict[str, Any]) -> None:
    """Every setting must have been used."""
    if config:
        raise ValueError(f"unknown settings {sorted(config)}")


SCRIPTS = {
    "breaker": breaker_script,
    "cooldown": cooldown_script,
    "scoped": scoped_script,
    "retry_budget": retry_budget_script,
}
