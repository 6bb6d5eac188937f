"""What every group must know of the database: its epoch, its revision, what gateways were told, and
what is derived of it.

Invariant: a group is stored under the facts that its own transaction has read. It is prepared
under those that were read before, which are nearly always the same, so nobody waits for them
apart; where they are not, ``Moved`` ends the transaction and the group is prepared anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import AsyncConnection, AsyncCursor

from controlplane.ingest.arrays import array_of
from controlplane.ingest.dirty import Watermarks

# One statement for all: each costs the web process and Postgres a turn of their own.
_FACTS = """
SELECT g.id, r.epoch::text, r.value, COALESCE(c.generation, 0),
    (SELECT upto FROM rollup_watermark WHERE grain = 'minute'),
    (SELECT upto FROM rollup_watermark WHERE grain = 'hour')
FROM revision r
CROSS JOIN unnest(%s::int[]) AS g(id)
LEFT JOIN gateway_config c ON c.gateway_id = g.id
"""


@dataclass(frozen=True, slots=True)
class Version:
    """The database's epoch, and the revision of its desired state."""

    epoch: str
    revision: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The version, the generation of each gateway that was asked for, and the watermarks, which
    stay where they are only for who has called ``dirty.share`` before.
    """

    version: Version
    generations: dict[int, int]
    watermarks: Watermarks


class Moved(Exception):
    """The version is another one than the group was prepared under. Nothing is stored."""

    def __init__(self, version: Version) -> None:
        super().__init__(str(version))
        self.version = version


async def ask(conn: AsyncConnection, gateways: Iterable[int]) -> AsyncCursor:
    """Ask, also in a pipeline; ``told`` reads the answer."""
    return await conn.execute(_FACTS, (array_of(sorted(set(gateways))),))


async def told(asked: AsyncCursor) -> Facts:
    """What ``ask`` has found."""
    rows = await asked.fetchall()
    assert rows, "the revision row is missing: run manage.py migrate"
    _, epoch, revision, _, minute, hour = rows[0]
    generations = {row[0]: row[3] for row in rows}
    return Facts(Version(epoch, revision), generations, Watermarks(minute, hour))
