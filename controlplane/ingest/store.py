"""The one transaction of a group of batches: receipts, events, what they change, commit.

Invariant: locks are taken in one order by everybody: watermarks (shared), receipts, instances, rows
of events by id, breakers, buckets, tasks, minutes, marks. A batch whose receipt was there changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from psycopg import AsyncConnection

from controlplane.ingest import dirty, receipts
from controlplane.ingest.append import Way, append
from controlplane.ingest.fold import fold, freeze
from controlplane.ingest.prepare import Prepared
from controlplane.ingest.read import DeadLetter
from controlplane.ingest.receipts import Key, Stored, key_of
from controlplane.ingest.rows import Item, Tables, joined
from controlplane.wire.events import Unread


async def store(
    conn: AsyncConnection, group: Sequence[Prepared], way: Way, epoch: str
) -> tuple[dict[Key, Stored], bool]:
    """What each batch's receipt says; True when what the wall shows has changed.

    Raises ``NoPartition``, ``InstanceGone``, ``OlderDatabase``, and what ``append`` raises for a
    way that will not do.
    """
    async with conn.transaction():
        # Statements that need no answer of each other share a wait for Postgres.
        async with conn.pipeline():
            shared = await dirty.share(conn)
            claim = await receipts.claim(conn, group)
        marks = await dirty.watermarks(shared)
        new, places = await claim.taken()
        receipts.check_told(group, places, epoch)
        claimed = [one for one in group if key_of(one) in new]
        said = await receipts.earlier(conn, [one for one in group if key_of(one) not in new])
        if not claimed:
            return said, False
        tables, gone = _parted(claimed, marks.raw)
        appended = await append(conn, tables, way)
        appended.refused += gone
        async with conn.pipeline():
            folded = await fold(conn, appended.new)
            await receipts.move_on(conn, claimed, places)
        changed = any(cursor.rowcount > 0 for cursor in folded.told)
        await freeze(conn, folded)
        await dirty.mark(conn, appended.new, marks)
        letters: list[tuple[Prepared, DeadLetter]] = []
        stored = Counter(i.origin.place for items in appended.new.values() for i in items)
        for one in claimed:
            place = one.origin.place
            refused = [(item, why) for item, why in appended.refused if item.origin.place == place]
            own = [*one.batch.unread, *(one.batch.letter(i.index, why) for i, why in refused)]
            own.sort(key=lambda letter: letter.index)
            count = stored[place]
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


def _parted(
    claimed: Sequence[Prepared], dropped_before: datetime
) -> tuple[Tables, list[tuple[Item, str]]]:
    """The rows to write, and apart those of days whose raw rows are dropped, with the reason.

    Such days are within the time that is accepted once the retention was raised. Nothing can tell
    whether an event of theirs was stored before, nor derive its hour again with the others.
    """
    tables = joined([one.tables for one in claimed])
    if all(one.batch.oldest >= dropped_before for one in claimed):
        return tables, []
    kept: Tables = {}
    gone: list[tuple[Item, str]] = []
    why = f"occurred_at: raw events before {dropped_before:%Y-%m-%d} UTC are dropped already"
    for name, items in tables.items():
        gone += [(item, why) for item in items if item.event.occurred_at < dropped_before]
        if left := [item for item in items if item.event.occurred_at >= dropped_before]:
            kept[name] = left
    return kept, gone
