"""A circuit's identity: (provider, model, region) and its one written form.

Invariant: ``parse(format(c)) == c`` for every circuit. The provider ends at the first ``/``, the
region begins at the last ``@``; an ``@`` inside a model is written ``%40`` (and ``%`` as ``%25``).
"""

from __future__ import annotations

from typing import NamedTuple


class Circuit(NamedTuple):
    """One target whose health is tracked on its own. ``region`` may be empty."""

    provider: str
    model: str
    region: str = ""

    def __str__(self) -> str:
        return format_circuit(self)


def format_circuit(circuit: Circuit) -> str:
    """Write ``provider/model@region``; the region and its ``@`` are left out when empty."""
    model = circuit.model.replace("%", "%25").replace("@", "%40")
    name = f"{circuit.provider}/{model}"
    return f"{name}@{circuit.region}" if circuit.region else name


def parse_circuit(name: str) -> Circuit:
    """Read the written form. Raises ``ValueError`` that says which part is missing."""
    provider, slash, rest = name.partition("/")
    if not provider or not slash or not rest:
        raise ValueError(f"{name!r} is not a circuit name: expected provider/model[@region]")
    model, at, region = rest.rpartition("@")
    if not at:
        model, region = rest, ""
    if not model or (at and not region):
        raise ValueError(f"{name!r} is not a circuit name: expected provider/model[@region]")
    return Circuit(provider, model.replace("%40", "@").replace("%25", "%"), region)
