"""The routes in force: those of the file, replaced by name by the control plane's.

Invariant: a route only ever names providers that the file knows, since only the file holds their
addresses and keys; the control plane's route with an unknown one is ``UnknownTarget``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import isfinite

from controlplane.domain.circuit import Circuit
from controlplane.domain.limits import RatePolicy
from controlplane.wire.desired import RouteItem
from gateway.config import UNLIMITED, Config, Record, Route, Target
from gateway.thresholds import OutOfRange

LONGEST_S = 3600.0


class UnknownTarget(ValueError):
    """A target of a provider that ``gateway.toml`` does not name. ``field`` is its path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Routing:
    """The table from a model name to its route."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._built_in = {route.name: route for route in config.routes}
        self._in_force = dict(self._built_in)
        self._rates = _rates(config)

    def get(self, name: str) -> Route | None:
        """The route that callers mean by this model name."""
        return self._in_force.get(name)

    def names(self) -> list[str]:
        """Every model name that callers may use, in order."""
        return sorted(self._in_force)

    def circuits(self) -> Iterator[Circuit]:
        """Every target of every route in force."""
        for route in self._in_force.values():
            for target in route.targets:
                yield target.circuit

    def rate(self, circuit: Circuit) -> RatePolicy:
        """What the file lets a circuit have, whatever routes are in force."""
        return self._rates.get(circuit, UNLIMITED)

    def usable(self, wall: datetime) -> list[tuple[str, list[Circuit]]]:
        """Each route's name and the targets whose approval stands."""
        return [
            (name, [target.circuit for target in route.targets if _approved(target, wall)])
            for name, route in self._in_force.items()
        ]

    def replace(self, routes: Iterable[Route]) -> None:
        """The control plane's whole list; a name that it no longer has is the file's again."""
        self._in_force = self._built_in | {route.name: route for route in routes}

    def read(self, item: RouteItem) -> Route:
        """A route as the wire says it. Raises ``UnknownTarget`` or ``OutOfRange``."""
        if not item.targets:
            raise OutOfRange("targets", "a route needs at least one target")
        for index, target in enumerate(item.targets):
            if self._config.provider(target.provider) is None:
                raise UnknownTarget(
                    f"targets[{index}].provider",
                    f"this gateway's file has no provider {target.provider!r}",
                )
            if not target.model:
                raise OutOfRange(f"targets[{index}].model", "model must not be empty")
        for field in ("deadline_seconds", "attempt_seconds"):
            value = getattr(item, field)
            if not isfinite(value) or not 0 < value <= LONGEST_S:
                raise OutOfRange(field, f"{field} must be above 0 and at most {LONGEST_S:g}")
        known = self._built_in.get(item.name) or Route(name=item.name, targets=())
        return Route(
            name=item.name,
            targets=tuple(
                Target(
                    circuit=Circuit(target.provider, target.model, target.region),
                    approved=target.approved,
                    approved_until=target.approved_until,
                    record=Record(
                        approved_by=target.approved_by,
                        approved_at=target.approved_at,
                        features=tuple(target.features),
                        processing_regions=tuple(target.processing_regions),
                        transfer_mechanism=target.transfer_mechanism,
                        retention_days=target.retention_days,
                    ),
                )
                for target in item.targets
            ),
            deadline_seconds=item.deadline_seconds,
            attempt_seconds=item.attempt_seconds,
            first_byte_seconds=min(known.first_byte_seconds, item.attempt_seconds),
            idle_seconds=known.idle_seconds,
            last_good=known.last_good,
        )


def _rates(config: Config) -> dict[Circuit, RatePolicy]:
    found: dict[Circuit, RatePolicy] = {}
    for route in config.routes:
        for target in route.targets:
            if target.rate.limits:
                found[target.circuit] = target.rate & found.get(target.circuit, UNLIMITED)
    return found


def _approved(target: Target, wall: datetime) -> bool:
    return target.approved and (target.approved_until is None or wall < target.approved_until)
