"""Does a write name circuits and gateways that exist? A typo must not return success.

Invariant: "any" covers circuits that are seen later; a part that is named must be of a known
circuit: one that a gateway reported, that an event carried, or that a Route names.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from controlplane.actions._fields import Faults
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.matching import NO_REGION
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit, Gateway, Route

_PARTS = ("provider", "model", "region")


def known_circuits() -> set[Name]:
    """Every circuit that the control plane has heard of."""
    rows = Circuit.objects.values_list("provider", "model", "region")
    named = {Name(*row) for row in rows}
    for spec in Route.objects.values_list("spec", flat=True):
        for target in spec.get("targets", []):
            named.add(Name(target["provider"], target["model"], target.get("region", "")))
    return named


def check_targets(selection: Selection, faults: Faults) -> None:
    """Add a fault, with the nearest names, for the first part that fits no known circuit."""
    _check_gateway(selection.gateway, faults)
    left = known_circuits()
    for part in _PARTS:
        wanted = getattr(selection, part)
        if not wanted:
            continue
        have = "" if wanted == NO_REGION and part == "region" else wanted
        fitting = {circuit for circuit in left if getattr(circuit, part) == have}
        if not fitting:
            known = sorted({getattr(circuit, part) or NO_REGION for circuit in left})
            faults.add(part, f"no known circuit has {part} {wanted!r}{nearest(wanted, known)}")
            return
        left = fitting


def _check_gateway(name: str, faults: Faults) -> None:
    if name and not Gateway.objects.filter(name=name).exists():
        known = Gateway.objects.order_by("name").values_list("name", flat=True)
        faults.add("gateway", f"no gateway is named {name!r}{nearest(name, known)}")


def nearest(wanted: str, known: Iterable[str]) -> str:
    """``; nearest: a, b`` to put behind an error; says so when nothing is known at all."""
    names = list(known)
    if not names:
        return "; none is known yet"
    close = get_close_matches(wanted, names, n=3, cutoff=0.4) or names[:3]
    return f"; nearest: {', '.join(close)}"
