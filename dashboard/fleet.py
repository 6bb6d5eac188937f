"""Who is in contact and who enforces what: the instances of one read, judged once.

Invariant: an instance that is silent is ``reachable = False`` and is in no "n of m"; its last words
are kept to be shown as the past. Pure: all time comes from the read itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from controlplane.domain.overrides import OverrideMode, OverrideRow
from controlplane.domain.precedence import Selection
from controlplane.domain.sync import Desired, Reported, Sync, SyncVerdict, judge
from controlplane.reports import wall_rows


@dataclass(frozen=True, slots=True)
class Member:
    """One instance beside its gateway, with its verdict."""

    row: wall_rows.InstanceRow
    gateway: wall_rows.GatewayRow
    verdict: SyncVerdict

    @property
    def name(self) -> str:
        """Its slot, which a new boot keeps."""
        return self.row.slot

    @property
    def full_name(self) -> str:
        """With its gateway, for a page of several: slots of two gateways may have one name."""
        return f"{self.gateway.name}/{self.row.slot}"

    @property
    def reachable(self) -> bool:
        """In contact within the last 30 s."""
        return self.verdict.sync is not Sync.UNREACHABLE

    @property
    def settings_sync(self) -> Sync:
        """The verdict but for overrides and probes, which stand on the circuits they are about.

        An override that is refused for one circuit says nothing about the others.
        """
        sync = self.verdict.sync
        if sync not in (Sync.REJECTED, Sync.UNSUPPORTED) or not self.row.items:
            return sync
        hands = all(item.kind in ("Override", "Probe") for item in self.row.items)
        return Sync.IN_SYNC if hands and self.verdict.reason != "SnapshotRefused" else sync


class Fleet:
    """The instances of one read by id, and the overrides over each gateway."""

    def __init__(self, now: wall_rows.Now) -> None:
        self.at: datetime = now.at
        self.gateways = {row.id: row for row in now.gateways}
        self.members = {
            row.id: Member(
                row, self.gateways[row.gateway_id], _judged(now, self.gateways[row.gateway_id], row)
            )
            for row in now.instances
        }
        self.overrides = {row.uid: row for row in now.overrides}
        self.local = {(row.gateway_id, row.uid): row for row in now.local}
        self.deliveries = {(row.instance_id, row.uid): row for row in now.deliveries}
        self._rows = [_override(row) for row in now.overrides]
        self._ruling: dict[tuple[int, int], wall_rows.OverrideRow | None] = {}

    @cached_property
    def reachable(self) -> list[Member]:
        """Every instance in contact."""
        return [member for member in self.members.values() if member.reachable]

    @cached_property
    def _over(self) -> dict[int, list[OverrideRow]]:
        return {
            gateway.id: sorted(
                (o for o in self._rows if o.selection.covers_gateway(gateway.name, gateway.labels)),
                key=lambda o: o.precedence,
            )
            for gateway in self.gateways.values()
        }

    def override_over(
        self, gateway_id: int, circuit: wall_rows.CircuitRow
    ) -> wall_rows.OverrideRow | None:
        """The override that rules a circuit at a gateway: the narrowest in force."""
        if not self._rows:
            return None
        key = (gateway_id, circuit.id)
        if key not in self._ruling:
            name = circuit.circuit
            self._ruling[key] = next(
                (
                    self.overrides[row.uid]
                    for row in self._over[gateway_id]
                    if row.in_force(self.at) and row.selection.covers_circuit(name)
                ),
                None,
            )
        return self._ruling[key]

    def targeted(self, override: wall_rows.OverrideRow) -> list[Member]:
        """The instances of the gateways that an override is about, by slot."""
        selection = _override(override).selection
        return [
            member
            for member in self.members.values()
            if selection.covers_gateway(member.gateway.name, member.gateway.labels)
        ]


def _override(row: wall_rows.OverrideRow) -> OverrideRow:
    return OverrideRow(
        uid=row.uid,
        name=row.name,
        generation=row.generation,
        selection=Selection(row.gateway, row.selector, row.provider, row.model, row.region),
        mode=OverrideMode(row.mode),
        reason=row.reason,
        expires_at=row.expires_at,
        allow_last_healthy=row.allow_last_healthy,
    )


def _judged(
    now: wall_rows.Now, gateway: wall_rows.GatewayRow, row: wall_rows.InstanceRow
) -> SyncVerdict:
    desired = Desired(
        epoch=now.epoch,
        generation=gateway.generation,
        hash=gateway.hash,
        since=row.pending_since or gateway.compiled_at or now.at,
    )
    reported = Reported(
        heard_at=row.last_seen_at,
        epoch=row.epoch,
        received_generation=row.received_generation,
        applied_generation=row.applied_generation,
        applied_hash=row.applied_hash,
        has_reported=row.reports > 0,
        rejected=sum(item.verdict == "Rejected" for item in row.items),
        unsupported=sum(item.verdict == "Unsupported" for item in row.items),
        refused_generation=row.refused_generation,
        checkpointed_generation=row.checkpointed_generation,
    )
    return judge(desired, reported, now.at)


def worst(members: Iterable[Member]) -> Member | None:
    """The member whose verdict is furthest from InSync."""
    ranks = [
        Sync.REJECTED,
        Sync.UNSUPPORTED,
        Sync.STALE,
        Sync.UNKNOWN,
        Sync.APPLYING,
        Sync.IN_SYNC,
        Sync.UNREACHABLE,
    ]
    return min(members, key=lambda member: ranks.index(member.verdict.sync), default=None)
