"""Throwing breakers from the terminal, and following what becomes of it.

Invariant: "recorded" is all that a write proves. With ``--watch`` the command ends with status 0
only when every instance that is meant has said that it enforces it; what is not so is named.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from decimal import Decimal
from typing import Any

from controlplane.cli.client import DIFFERS, OK, UNAVAILABLE, USAGE, Client, Failed, path_of
from controlplane.cli.kinds import name_of
from controlplane.cli.show import complain, dump, moment, say
from controlplane.domain.circuit import parse_circuit
from controlplane.domain.durations import duration
from controlplane.domain.overrides import LIFETIMES, OverrideMode, in_words

EVERY_S = 0.25
PATIENCE_S = 30.0
ENFORCED, LIFTED = "enforced", "lifted"
VERBS = {
    "force-open": OverrideMode.FORCE_OPEN,
    "force-close": OverrideMode.FORCE_CLOSED,
    "force-closed": OverrideMode.FORCE_CLOSED,
    "observe": OverrideMode.OBSERVE_ONLY,
}


def force(client: Client, options: argparse.Namespace) -> int:
    """Record an override; follow it with ``--watch``."""
    mode = VERBS[options.verb]
    seconds = LIFETIMES[mode].default.total_seconds()
    if options.lasts is not None:
        seconds = read_duration("--for", options.lasts)
    body = {
        "mode": mode.value,
        "reason": options.reason,
        "expiresIn": seconds,
        "ticket": options.ticket,
        "allowLastHealthy": options.allow_last_healthy,
        **({"breakGlass": True} if options.break_glass else {}),
        **selection(options),
    }
    if options.dry_run:
        found = client.post("/overrides", body, dryRun=True)
        _dry(found, options)
        return OK
    made = _create(client, body, options.take_over)
    # Not by the phase: an override that no instance is there for yet is Pending too, and in force.
    if "approveBefore" in made["status"]:
        return _pending(made, options)
    return _recorded(client, "overrides", made, options)


def _pending(made: Any, options: argparse.Namespace) -> int:
    """Nothing is in force: a script that follows it must not take that for done."""
    if options.output in ("json", "yaml"):
        dump(made, options.output)
    else:
        say(f"override/{name_of(made)} pending: it is fleet-wide and in force nowhere")
        say(f"another operator, within 15 min: switchgear approve {name_of(made)} --watch")
    return DIFFERS if options.watch else OK


def approve(client: Client, options: argparse.Namespace) -> int:
    """Put in force what another operator asked for."""
    made = client.post(path_of("overrides", options.name, "approve"))
    return _recorded(client, "overrides", made, options)


def decide(client: Client, options: argparse.Namespace) -> int:
    """Withdraw a request, or acknowledge a broken glass."""
    client.post(path_of("overrides", options.name, options.verb))
    done = {"withdraw": "withdrawn", "acknowledge": "acknowledged"}[options.verb]
    say(f"override/{options.name} {done}")
    return OK


def _create(client: Client, body: dict[str, Any], take_over: bool) -> Any:
    try:
        return client.post("/overrides", body)
    except Failed as error:
        holder = error.problem.get("current") or {}
        if error.problem.get("code") != "already_forced" or not take_over:
            if error.problem.get("code") == "already_forced":
                complain("add --take-over to end it and take its place")
            raise
        return client.post("/overrides", body | {"replace": holder["name"]})


def probe(client: Client, options: argparse.Namespace) -> int:
    """Let open breakers try again now."""
    made = client.post("/probes", {"reason": options.reason, **selection(options)})
    return _recorded(client, "probes", made, options)


def release(client: Client, options: argparse.Namespace) -> int:
    """End overrides, by name or all that this token recorded."""
    status = OK
    if bool(options.names) == options.mine:
        raise Failed("release: name the overrides, or --mine", USAGE)
    if options.mine:
        ended = client.post("/overrides/release-mine", {"reason": options.reason})["items"]
    else:
        ended, status = _release_each(client, options.names, {"reason": options.reason})
    for one in ended:
        say(f"override/{name_of(one)} {one['status']['endCause'].lower()}")
    if not ended and status == OK:
        say("nothing to release")
    for one in ended if options.watch else []:
        name = name_of(one)
        said = f"{name}: " if len(ended) > 1 else ""
        status = max(status, follow(client, "overrides", name, options.timeout, LIFTED, said))
    return status


def _release_each(client: Client, names: list[str], body: dict[str, Any]) -> tuple[list[Any], int]:
    """Those that ended, and the worst status: a wrong name keeps no other override in force."""
    ended, status = [], OK
    for name in names:
        try:
            ended.append(client.post(path_of("overrides", name, "release"), body))
        except Failed as error:
            if len(names) == 1 or error.exit_status == UNAVAILABLE:
                raise
            complain(f"{name}: {error}")
            status = max(status, error.exit_status)
    return ended, status


def extend(client: Client, options: argparse.Namespace) -> int:
    """Move an override's end."""
    seconds = read_duration("--for", options.lasts)
    body = {"expiresIn": seconds, "reason": options.reason}
    made = client.post(path_of("overrides", options.name, "extend"), body)
    return _recorded(client, "overrides", made, options)


def _recorded(client: Client, path: str, made: Any, options: argparse.Namespace) -> int:
    name = name_of(made)
    if options.output in ("json", "yaml") and not options.watch:
        dump(made, options.output)
        return OK
    say(f"{path[:-1]}/{name} recorded")
    if options.watch:
        return follow(client, path, name, options.timeout)
    say(f"recorded is not enforced; follow it: switchgear get {path} {name} --watch")
    return OK


def follow(
    client: Client,
    path: str,
    name: str,
    timeout: float | None,
    stage: str = ENFORCED,
    prefix: str = "",
) -> int:
    """Say how far it has come until nothing more is awaited; DIFFERS unless all have it.

    ``timeout``: seconds; None is ``PATIENCE_S``.
    """
    began, said, patience = time.monotonic(), "", PATIENCE_S if timeout is None else timeout
    while True:
        status = client.get(path_of(path, name))["status"]
        asked = "approveBefore" in status
        line = _asked(status) if asked else progress(status, stage)
        passed = time.monotonic() - began
        if line != said:
            say(f"{prefix}{line}  [{passed:.1f} s]")
            said = line
        if asked and status["phase"] != "Pending":
            return DIFFERS
        if not asked and not _awaited(counts := status["counts"], stage):
            _explain(status, stage)
            done = counts[stage] == _wanted(counts, stage)
            return OK if done and counts["targeted"] else DIFFERS
        if passed > patience:
            complain(f"not {stage} by all after {patience:g} s")
            return DIFFERS
        time.sleep(EVERY_S)


def _asked(status: dict[str, Any]) -> str:
    """A request for an override, which somebody may approve while it is followed."""
    by = f" by {status['decidedBy']}" if status["decidedBy"] else ""
    until = ", until another operator approves it" if status["phase"] == "Pending" else ""
    return f"{status['phase'].lower()}{by}: in force nowhere{until}"


def _awaited(counts: dict[str, int], stage: str) -> int:
    """How many have not said yet what became of it."""
    waiting = counts["recorded"] + counts["delivered"]
    return waiting + (counts["enforced"] if stage == LIFTED else 0)


def _wanted(counts: dict[str, int], stage: str) -> int:
    """How many have to get there: what was refused never was in force, and needs no end."""
    never = counts["rejected"] + counts["unsupported"] if stage == LIFTED else 0
    return counts["targeted"] - never


def progress(status: dict[str, Any], stage: str = ENFORCED) -> str:
    """``17/20 enforced, 1 rejected: LocalFloorViolated (eu-1/host-b/0), 2 unreachable``."""
    counts = status["counts"]
    if not counts["targeted"]:
        return "no instance is in contact that it is about"
    parts = [f"{counts[stage]}/{_wanted(counts, stage)} {stage}"]
    for word in ("rejected", "unsupported", "superseded", "unreachable", "delivered", "recorded"):
        if counts[word] and word != stage:
            named = f"never enforced it ({word})" if _is_never(word, stage) else word
            parts.append(f"{counts[word]} {named}{'' if named != word else _why(status, word)}")
    return ", ".join(parts)


def _is_never(word: str, stage: str) -> bool:
    return stage == LIFTED and word in ("rejected", "unsupported")


def _explain(status: dict[str, Any], stage: str) -> None:
    """Each refusal once in the instance's own words, and what would change it."""
    if stage == LIFTED:
        return
    told = set()
    for one in status["instances"]:
        if one["stage"] not in ("Rejected", "Unsupported"):
            continue
        field = f" at {one['fieldPath']}" if one.get("fieldPath") else ""
        words = f"{one['reason']}{field}: {one['message'] or 'it says no more'}"
        if words not in told:
            told.add(words)
            complain(f"{one['gateway']}/{one['slot']} refuses it: {words}")
    if any(words.startswith("LocalFloorViolated") for words in told):
        complain("add --allow-last-healthy to force it all the same, or approve another target")


def _why(status: dict[str, Any], word: str) -> str:
    if word not in ("rejected", "unsupported"):
        return ""
    mine = [i for i in status["instances"] if i["stage"].lower() == word]
    reasons = Counter(i["reason"] for i in mine)
    first = {i["reason"]: f"{i['gateway']}/{i['slot']}" for i in reversed(mine)}
    told = [f"{r} ({first[r]}{f' and {n - 1} more' if n > 1 else ''})" for r, n in reasons.items()]
    return ": " + "; ".join(told)


def _dry(found: Any, options: argparse.Namespace) -> None:
    if options.output in ("json", "yaml"):
        dump(found, options.output)
        return
    would = found["dryRun"]
    spec = found["spec"]
    say(f"would be {spec['mode']} until {moment(spec['expiresAt'])}")
    say(f"circuits: {', '.join(would['circuits']) or 'none known yet'}")
    say(f"now: {would['callsPerSecond']} calls/s, £{Decimal(would['gbpPerMinute']):.4f}/min")
    say(f"instances: {len(would['instances'])}")
    if would.get("needsApproval") and not options.break_glass:
        say("fleet-wide: another operator would have to approve it")
    for route in would["routes"]:
        say(f"route {route['name']}: left {', '.join(route['targetsLeft']) or 'nothing'}")
    if would["lastHealthy"] and not options.allow_last_healthy:
        refusing = ", ".join(would["lastHealthy"])
        say(
            f"refused by {refusing}: it is their last healthy target; --allow-last-healthy takes it"
        )


def selection(options: argparse.Namespace) -> dict[str, str]:
    """``PROVIDER[/MODEL[@REGION]]`` and the gateways; a part that is left out is any."""
    text = options.target
    found = {"gateway": options.gateway, "selector": options.selector}
    if text in ("all", "*"):
        return found
    if "/" not in text:
        return found | {"provider": text}
    try:
        circuit = parse_circuit(text)
    except ValueError as error:
        raise Failed(f"{text}: {error}", USAGE) from error
    provider, model = ("" if part == "*" else part for part in (circuit.provider, circuit.model))
    return found | {"provider": provider, "model": model, "region": circuit.region}


def read_duration(option: str, text: str) -> float:
    """``30m`` or ``90`` as seconds."""
    plain = text.strip()
    seconds = float(plain) if plain.isascii() and plain.isdigit() else duration(plain)
    if not seconds or not 0 < seconds <= 10**9:
        raise Failed(f"{option}: write a duration such as 30m, 1h30m or 90 (seconds)", USAGE)
    return seconds


def lifetimes() -> str:
    """What ``--for`` is when it is left out, for the help."""
    told = [f"{mode.value} {in_words(life.default)}" for mode, life in LIFETIMES.items()]
    return ", ".join(told)
