"""The kinds of object, their paths in the API and what a table shows of each.

Invariant: a table says observed and desired apart, and a count is always ``n/m``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from controlplane.cli.client import USAGE, Failed
from controlplane.cli.show import Column, Item, age
from controlplane.domain.sync import NOT_ON_DISK


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its path, its other names, and the columns of its table."""

    path: str
    kind: str
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    wide: tuple[Column, ...] = ()


def kind_of(word: str) -> Kind:
    """The kind that a word on the command line means."""
    for kind in KINDS:
        if word.lower() in kind.names:
            return kind
    known = ", ".join(kind.names[0] for kind in KINDS)
    raise Failed(f"no kind is called {word!r}; known: {known}", USAGE)


def kind_of_object(name: str) -> Kind:
    """The kind of an object in a file."""
    for kind in SETTINGS:
        if kind.kind == name:
            return kind
    known = ", ".join(kind.kind for kind in SETTINGS)
    raise Failed(f"kind {name!r} is not applied from a file; known: {known}", USAGE)


def name_of(item: Item) -> str:
    """An object's name."""
    return str(item.get("metadata", {}).get("name") or item.get("id") or "")


def target(item: Item) -> str:
    """What an override or a probe is about."""
    spec = item["spec"]
    circuits = f"{spec.get('provider') or '*'}/{spec.get('model') or '*'}"
    return circuits + (f"@{spec['region']}" if spec.get("region") else "")


def where(item: Item) -> str:
    """On which gateways."""
    spec = item["spec"].get("match") or item["spec"]
    return str(spec.get("gateway") or spec.get("selector") or "(all)")


def enforced(item: Item) -> str:
    """``17/20``; a dash where nothing is followed."""
    counts = item.get("status", {}).get("counts")
    return f"{counts['enforced']}/{counts['targeted']}" if counts else "-"


def _match(item: Item) -> str:
    match = item["spec"].get("match") or {}
    named = [f"{part}={value}" for part, value in match.items() if value]
    return ",".join(named) or "(any)"


def rejected(item: Item) -> str:
    """How many instances refuse it and why: ``2 LocalFloorViolated``; '' when none does."""
    refused = refusals(item)
    reasons = Counter(str(one["reason"] or one["stage"]) for one in refused)
    return ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())


def refusals(item: Item) -> list[Item]:
    """The instances that said no to it while it is wanted."""
    status = item.get("status") or {}
    if not status.get("active", True):
        return []
    steps = status.get("instances") or []
    return [one for one in steps if one.get("stage") in ("Rejected", "Unsupported")]


def refused_parts(item: Item) -> list[str]:
    """What the instances of a gateway refuse of its configuration, and why."""
    if item.get("kind") != "Gateway":
        return []
    return [
        f"{one['slot']} refuses {part['kind'].lower()}/{part['name']}: {part.get('reason')}"
        + (f" at {part['field_path']}" if part.get("field_path") else "")
        + (f": {part['message']}" if part.get("message") else "")
        for one in item["status"]["instances"]
        for part in one["items"]
        if part.get("verdict") in ("Rejected", "Unsupported")
    ]


def _states(item: Item) -> str:
    """Observed: ``Open 14/18``, as calls meet it; an instance without contact is Unknown."""
    found = Counter(one["observed"] for one in item["status"]["instances"])
    total = sum(found.values())
    order = [s for s in ("Open", "HalfOpen", "Ramping", "Closed", "Unknown") if found[s]]
    return ", ".join(f"{state} {found[state]}/{total}" for state in order) or "no instance"


def _modes(item: Item) -> str:
    """Desired: one mode, or ``ForceOpen 1/3, Auto 2/3`` where gateways differ."""
    found = Counter(one["mode"] for one in item["status"]["desired"])
    total = sum(found.values())
    if len(found) < 2:
        return next(iter(found), "Auto")
    return ", ".join(f"{mode} {n}/{total}" for mode, n in found.most_common())


def _hands(item: Item) -> str:
    """Instances under a hand: ``2/2``."""
    held = [one for one in item["status"]["instances"] if one["mode"] != "Auto"]
    return f"{len(held)}/{len(item['status']['instances'])}" if held else ""


def _since(item: Item) -> str:
    found = [one["since"] for one in _worst(item)]
    return age(min(found)) if found else ""


def _next_probe(item: Item) -> str:
    found = [one["nextProbeAt"] for one in _worst(item) if one.get("nextProbeAt")]
    return f"in {age(min(found))}" if found else ""


def _worst(item: Item) -> list[Item]:
    """The instances in the state that the table names first."""
    found = item["status"]["instances"]
    for state in ("Open", "HalfOpen", "Ramping", "Closed"):
        if named := [one for one in found if one["observed"] == state]:
            return named
    return []


def _causes(item: Item) -> str:
    causes = {i["cause"] for i in item["status"]["instances"] if i["state"] in ("Open", "HalfOpen")}
    return ",".join(sorted(causes))


def _sync(item: Item) -> str:
    told = [f"{n} {word}" for word, n in item["status"]["counts"].items()]
    unsaved = sum(one.get("reason") == NOT_ON_DISK for one in item["status"].get("instances", []))
    return ", ".join([*told, *([f"{unsaved} {NOT_ON_DISK}"] if unsaved else [])])


def _target_list(item: Item) -> str:
    found = [f"{t['provider']}/{t['model']}" for t in item["spec"].get("targets", [])]
    return " > ".join(found)


def _meta(field: str) -> Any:
    return lambda item: item["metadata"].get(field)


_NAME: Column = ("NAME", name_of)
_ENFORCED: Column = ("ENFORCED", enforced)
_PHASE: Column = ("PHASE", lambda i: i["status"].get("phase"))
_REJECTED: Column = ("REJECTED", rejected)
_GENERATION: Column = ("GENERATION", _meta("generation"))
_BY: Column = ("BY", _meta("updatedBy"))
_AGE: Column = ("AGE", lambda i: age(i["metadata"].get("updatedAt")))
_REASON: Column = ("REASON", lambda i: i["spec"].get("reason"))

SETTINGS = (
    Kind(
        "policies",
        "BreakerPolicy",
        ("policies", "policy", "breakerpolicy", "breakerpolicies"),
        (_NAME, ("MATCH", _match), _GENERATION, _ENFORCED, _REJECTED, _PHASE),
        (_BY, _AGE),
    ),
    Kind(
        "budgets",
        "RetryBudget",
        ("budgets", "budget", "retrybudget", "retrybudgets"),
        (
            _NAME,
            ("LEVEL", lambda i: i["spec"].get("level")),
            ("MATCH", _match),
            _GENERATION,
            _ENFORCED,
            _REJECTED,
            _PHASE,
        ),
        (_BY, _AGE),
    ),
    Kind(
        "routes",
        "Route",
        ("routes", "route"),
        (
            _NAME,
            ("TARGETS", _target_list),
            ("GATEWAYS", where),
            _GENERATION,
            _ENFORCED,
            _REJECTED,
            _PHASE,
        ),
        (_BY, _AGE),
    ),
)
KINDS = (
    Kind(
        "gateways",
        "Gateway",
        ("gateways", "gateway", "gw"),
        (
            _NAME,
            ("LIVE", lambda i: i["status"]["live"]),
            ("SYNC", _sync),
            ("GENERATION", lambda i: i["spec"]["generation"]),
        ),
        (("LABELS", lambda i: ",".join(f"{k}={v}" for k, v in i["metadata"]["labels"].items())),),
    ),
    Kind(
        "circuits",
        "Circuit",
        ("circuits", "circuit", "cb"),
        (_NAME, ("OBSERVED", _states), ("DESIRED", _modes), ("CAUSE", _causes)),
        (("FORCED", _hands), ("SINCE", _since), ("NEXT PROBE", _next_probe)),
    ),
    Kind(
        "overrides",
        "Override",
        ("overrides", "override", "ov"),
        (
            _NAME,
            ("MODE", lambda i: i["spec"]["mode"]),
            ("TARGET", target),
            ("GATEWAYS", where),
            _ENFORCED,
            _REJECTED,
            _PHASE,
            ("ENDS", lambda i: age(i["spec"]["expiresAt"]) if i["status"]["active"] else "ended"),
            _REASON,
        ),
        (("BY", _meta("createdBy")), ("TICKET", lambda i: i["spec"].get("ticket"))),
    ),
    *SETTINGS,
    Kind(
        "providers",
        "Provider",
        ("providers", "provider"),
        (_NAME, ("STATUS PAGE", lambda i: i["spec"]["statusUrl"]), _BY, _AGE),
    ),
    Kind(
        "probes",
        "Probe",
        ("probes", "probe"),
        (_NAME, ("TARGET", target), ("GATEWAYS", where), _ENFORCED, _PHASE, _REASON),
        (("BY", _meta("createdBy")), _AGE),
    ),
    Kind(
        "tokens",
        "ServiceToken",
        ("tokens", "token"),
        (
            _NAME,
            ("ROLE", lambda i: i["spec"]["role"]),
            ("STATE", lambda i: i["status"]["state"]),
            ("EXPIRES", lambda i: age(i["spec"]["expiresAt"])),
        ),
        (
            ("BY", _meta("createdBy")),
            ("AGE", lambda i: age(i["metadata"].get("createdAt"))),
        ),
    ),
    Kind(
        "people",
        "Person",
        ("people", "person"),
        (
            _NAME,
            ("ROLE", lambda i: i["spec"]["role"]),
            ("ACTIVE", lambda i: "yes" if i["spec"]["active"] else "no"),
        ),
    ),
)
