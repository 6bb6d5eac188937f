"""The one transaction of a group of batches: receipts, events, what they change, commit.

Invariant: locks are taken in one order by everybody: receipts, instances, event rows by id,
breakers, buckets, tasks, minutes. A batch whose receipt was there changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from psycopg import AsyncConnection

from controlplane.ingest import receipts
from controlplane.ingest.append import append
from controlplane.ingest.fold import fold
from controlplane.ingest.prepare import Prepared
from controlplane.ingest.read import DeadLetter
from controlplane.ingest.receipts import Key, Stored, key_of
from controlplane.ingest.rows import joined
from controlplane.wire.events import Unread


async def store(
    conn: AsyncConnection, group: Sequence[Prepared], *, alone: bool
) -> tuple[dict[Key, Stored], bool]:
    """What each batch's receipt says; True when what the wall shows has changed.

    ``alone``: a row that Postgres cannot hold becomes a dead letter; in a group it raises
    ``psycopg.DataError``. Raises ``NoPartition`` and ``InstanceGone``.
    """
    async with conn.transaction():
        new = await receipts.claim(conn, group)
        claimed = [one for one in group if key_of(one) in new]
        said = await receipts.earlier(conn, [one for one in group if key_of(one) not in new])
        if not claimed:
            return said, False
        places = await receipts.lock_instances(conn, (one.origin.instance_id for one in claimed))
        tables = joined([one.tables for one in claimed])
        appended = await append(conn, tables, alone=alone)
        budgets = [item for one in claimed for item in one.budgets]
        changed = await fold(conn, [*appended.new, *budgets])
        await receipts.move_on(conn, claimed, places)
        stored = Counter(item.origin.place for item in (*appended.new, *budgets))
        letters: list[tuple[Prepared, DeadLetter]] = []
        for one in claimed:
            refused = [r for r in appended.refused if r[0].origin.place == one.origin.place]
            own = [*one.batch.unread, *(one.batch.letter(i.index, why) for i, why in refused)]
            own.sort(key=lambda letter: letter.index)
            count = stored[one.origin.place]
            answer = said[key_of(one)] = Stored(
                stored=count,
                duplicates=len(one.items) - count - len(refused),
                unread=[Unread(index=letter.index, reason=letter.reason) for letter in own],
                contiguous=places[one.origin.instance_id].contiguous,
            )
            await receipts.fill(conn, one, answer)
            letters += [(one, letter) for letter in own]
        await receipts.keep_letters(conn, letters)
    return said, changed
