"""A route's targets as the request loop wants them: approvals end on the monotonic clock.

Invariant: an approval ends at its moment of wall time as both clocks stand when a request comes, so
a step of the wall clock moves it for later requests only. Seconds; ``wall`` is aware UTC.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.domain.request_plan import Target
from gateway.config import Route
from gateway.config import Target as Configured

_MOST = 1000


class Approvals:
    """Of one worker."""

    def __init__(self) -> None:
        self._lasting: dict[str, tuple[Route, tuple[Target, ...]]] = {}

    def targets(self, route: Route, now: float, wall: datetime) -> tuple[Target, ...]:
        """The targets of a route for a request that comes now."""
        held = self._lasting.get(route.name)
        if held is not None and held[0] is route:
            return held[1]
        targets = tuple(_target(target, now, wall) for target in route.targets)
        if all(target.approved_until is None for target in targets):
            # Without an end they are the same for each request, until the route is another one.
            if len(self._lasting) >= _MOST:
                self._lasting.clear()
            self._lasting[route.name] = route, targets
        return targets


def _target(target: Configured, now: float, wall: datetime) -> Target:
    until = target.approved_until
    ends = None if until is None else now + (until - wall).total_seconds()
    return Target(target.circuit, target.approved, ends)
