"""What a gateway is told, ready to send: the compiled bytes and what passes with time beside them.

Invariant: the spec is sent as the very bytes that were hashed. Remaining seconds, the server's time
and the count of live instances are of the moment of reading, on the database's clock, and stand
outside of the hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from controlplane.domain.sync import SILENT_RED
from controlplane.errors import NotFound
from controlplane.models.pool import named_sql
from controlplane.wire.desired import Bookmark

_SQL = Path(__file__).parent / "sql" / "head.sql"


class Item(msgspec.Struct):
    """What names one item of a spec."""

    uid: str
    name: str
    generation: int


class _Override(Item):
    expires_at: datetime


class Items(msgspec.Struct):
    """The identities in a spec: all that is read of it again. Anything else in it is skipped."""

    policies: list[Item]
    budgets: list[Item]
    overrides: list[_Override]
    routes: list[Item]
    probes: list[_Override] = []

    def by_kind(self) -> list[tuple[str, Item]]:
        """Every item with its kind, as status reports name it."""
        lists = {
            "Policy": self.policies,
            "Budget": self.budgets,
            "Override": list[Item](self.overrides),
            "Route": self.routes,
            "Probe": list[Item](self.probes),
        }
        return [(kind, item) for kind, items in lists.items() for item in items]


@dataclass(frozen=True)
class Head:
    """One reading of a gateway's desired state.

    The frames are encoded once, however many streams they are sent to.
    """

    gateway: str
    epoch: str
    revision: int
    generation: int
    hash: str
    items: int
    may_shrink: bool
    server_time: datetime
    instances: int
    spec: bytes

    @property
    def etag(self) -> str:
        """Changes exactly when the content does."""
        return f'"{self.generation}-{self.hash}"'

    @cached_property
    def bookmark(self) -> bytes:
        """The frame for a caller who is current."""
        return msgspec.json.encode(
            Bookmark(
                epoch=self.epoch,
                revision=self.revision,
                generation=self.generation,
                hash=self.hash,
                server_time=self.server_time,
                instances=self.instances,
            )
        )

    @cached_property
    def snapshot(self) -> bytes:
        """The full snapshot (``wire.desired.Snapshot``), the spec spliced in as it was hashed."""
        timed = items_of(self.spec)
        return msgspec.json.encode(
            {
                "gateway": self.gateway,
                "epoch": self.epoch,
                "revision": self.revision,
                "generation": self.generation,
                "hash": self.hash,
                "items": self.items,
                "server_time": self.server_time,
                "instances": self.instances,
                "spec": msgspec.Raw(self.spec),
                "remaining_s": {
                    o.uid: max(0.0, (o.expires_at - self.server_time).total_seconds())
                    for o in (*timed.overrides, *timed.probes)
                },
                "may_shrink": self.may_shrink,
            }
        )


def items_of(spec: bytes) -> Items:
    """The identities in the bytes of a spec."""
    return msgspec.json.decode(spec, type=Items)


async def read_head(conn: AsyncConnection, gateway_id: int, gateway: str) -> Head:
    """The gateway's desired state now. Raises ``NotFound`` before its first compilation."""
    values = {"gateway": gateway_id, "live_s": SILENT_RED.total_seconds()}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(named_sql(_SQL), values)
        row = await cursor.fetchone()
    if row is None or row["generation"] is None:
        raise NotFound(
            f"Gateway {gateway} has no configuration yet; run manage.py bootstrap.",
            code="not_compiled",
        )
    told = {"spec": row["spec"].encode(), "instances": max(1, row["instances"])}
    return Head(gateway=gateway, **(row | told))
