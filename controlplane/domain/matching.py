"""Which circuits an override, a policy or a budget is about (design 4.5).

Invariant: the empty string means any; region ``-`` means "no region", so a circuit without a region
can be named on its own.
"""

from __future__ import annotations

from controlplane.domain.circuit import Circuit

NO_REGION = "-"


def matches(provider: str, model: str, region: str, circuit: Circuit) -> bool:
    """True when each part is any or is the circuit's own."""
    return (
        provider in ("", circuit.provider)
        and model in ("", circuit.model)
        and (region in ("", circuit.region) or (region == NO_REGION and not circuit.region))
    )
