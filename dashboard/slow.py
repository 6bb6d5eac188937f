"""Whether a circuit is slow, by the policy that rules it over every gateway. Pure.

Invariant: the figures are the fleet's, so a policy of single gateways has no say in it.
"""

from __future__ import annotations

from controlplane.domain.histogram import counts_of
from controlplane.domain.precedence import Selection, precedence
from controlplane.domain.slowness import Slowness, SlowRule, slowness
from controlplane.reports import wall_rows
from controlplane.wire import desired


def slow_of(
    tail: wall_rows.TailRow | None,
    policies: list[wall_rows.PolicyRow],
    row: wall_rows.CircuitRow,
) -> Slowness | None:
    """By the narrowest policy over every gateway; without one by what a gateway has built in."""
    if tail is None:
        return None
    matching = [
        (precedence(selection, policy.name), policy)
        for policy in policies
        if not policy.gateway and not policy.selector
        for selection in [Selection("", "", policy.provider, policy.model, policy.region)]
        if selection.covers_circuit(row.circuit)
    ]
    if matching:
        ruling = min(matching, key=lambda pair: pair[0])[1]
        rule = SlowRule(ruling.slow_call_seconds, ruling.slow_ratio)
    else:
        rule = SlowRule(desired.Breaker().slow_call_seconds)
    return slowness(tail.calls, counts_of(tail.bins), rule)
