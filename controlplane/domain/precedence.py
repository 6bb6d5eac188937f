"""What an override, a policy or a budget selects, and which of several is the narrowest.

Invariant: the order is total and the same everywhere (design 4.5): gateway (name, selector, any),
tenant, model, region, provider, then the mode (ForceOpen, ForceClosed, ObserveOnly), then the name.
Whoever sorts by ``precedence`` and takes the first match has the one that is in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from controlplane.domain.circuit import Circuit
from controlplane.domain.matching import matches
from controlplane.domain.selectors import selects

MODE_ORDER: Final = ("ForceOpen", "ForceClosed", "ObserveOnly")

Precedence: TypeAlias = tuple[int, bool, bool, bool, bool, int, str]


@dataclass(frozen=True, slots=True)
class Selection:
    """Gateways by name or by label selector, circuits by their parts. Empty means any."""

    gateway: str = ""
    selector: str = ""
    provider: str = ""
    model: str = ""
    region: str = ""
    tenant: str = ""

    def covers_gateway(self, name: str, labels: Mapping[str, str]) -> bool:
        """True when it is about that gateway."""
        if self.gateway:
            return self.gateway == name
        return not self.selector or selects(self.selector, labels)

    def covers_circuit(self, circuit: Circuit) -> bool:
        """True when it is about that circuit."""
        return matches(self.provider, self.model, self.region, circuit)

    @property
    def circuits(self) -> str:
        """Its circuits alone, as a person reads them: ``openai/*@eu``."""
        where = f"@{self.region}" if self.region else ""
        circuits = f"{self.provider or '*'}/{self.model or '*'}{where}"
        return "every circuit" if circuits == "*/*" else circuits

    def __str__(self) -> str:
        """How a person reads it: ``openai/*@eu on gateways eu-1``."""
        circuits = self.circuits
        tenant = f" for tenant {self.tenant}" if self.tenant else ""
        if self.gateway:
            return f"{circuits}{tenant} on gateway {self.gateway}"
        if self.selector:
            return f"{circuits}{tenant} on gateways {self.selector}"
        return f"{circuits}{tenant} on every gateway"


def precedence(selection: Selection, name: str, mode: str = "") -> Precedence:
    """Sort key: narrowest first. ``mode`` only for overrides."""
    gateway = 0 if selection.gateway else 1 if selection.selector else 2
    return (
        gateway,
        not selection.tenant,
        not selection.model,
        not selection.region,
        not selection.provider,
        MODE_ORDER.index(mode) if mode in MODE_ORDER else len(MODE_ORDER),
        name,
    )
