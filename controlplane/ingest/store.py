"""The one transaction of a group of batches: receipts, events, what they change, commit.

Invariant: locks are taken in one order by everybody: watermarks (shared), receipts, instances, rows
of events by id, marks of minutes, breakers, buckets, tasks, minutes, marks of hours. A batch whose
receipt was there changes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus

from controlplane.ingest import dirty, facts, receipts, rollup
from controlplane.ingest.append import Appended, Way, append, few_of, named, send_few
from controlplane.ingest.early import Early
from controlplane.ingest.facts import Facts, Moved, Version
from controlplane.ingest.fold import fold, freeze
from controlplane.ingest.prepare import Prepared
from controlplane.ingest.read import DeadLetter
from controlplane.ingest.receipts import Key, Place, Stored, key_of
from controlplane.ingest.rows import Item, Tables, joined
from controlplane.wire.events import Unread

# Raw rows are kept for 8 days at least (settings), so that nearly no group has to ask.
_NEVER_DROPPED = timedelta(days=7)
_DROPPED = "SELECT max(upto) FROM raw_dropped"
_BEGIN, _COMMIT, _ROLLBACK = "BEGIN", "COMMIT", "ROLLBACK"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Said:
    """What each batch's receipt says, the facts it was stored under; ``changed``: what the wall
    shows is another now; ``tables``: those that have got new rows.
    """

    facts: Facts
    receipts: dict[Key, Stored]
    changed: bool = False
    tables: list[str] = field(default_factory=list)


async def store(
    conn: AsyncConnection,
    group: Sequence[Prepared],
    way: Way,
    version: Version,
    *,
    keep: bool = True,
) -> Said:
    """Store a group that was prepared under ``version``. It is committed when this returns.

    Without ``keep`` all is done and then rolled back: a rehearsal.

    Raises ``Moved``, ``NoPartition``, ``InstanceGone``, ``OlderDatabase``, and what ``append``
    raises for a way that will not do.
    """
    end = _COMMIT if keep else _ROLLBACK
    async with _rolled_back_on_error(conn):
        # Statements that need no answer of each other share a wait for Postgres, the first and the
        # last of the transaction too.
        async with conn.pipeline():
            await conn.execute(_BEGIN)
            await dirty.share(conn)
            asked = await facts.ask(conn, (one.origin.gateway_id for one in group))
            claim = await receipts.claim(conn, group)
        said = Said(await facts.told(asked), {})
        if said.facts.version != version:
            raise Moved(said.facts.version)
        new, places = await claim.taken()
        receipts.check_told(group, places, said.facts)
        claimed = [one for one in group if key_of(one) in new]
        earlier = [one for one in group if key_of(one) not in new]
        said.receipts = await receipts.earlier(conn, earlier)
        if claimed:
            await _store_new(conn, claimed, places, way, said, end)
        else:
            _check_ended(await conn.execute(end), end)
    return said


async def _store_new(
    conn: AsyncConnection,
    claimed: Sequence[Prepared],
    places: dict[int, Place],
    way: Way,
    said: Said,
    end: str,
) -> None:
    """Store and fold the batches whose receipts are new, end, and add to ``said``."""
    tables, gone = await _parted(conn, claimed)
    added = Early(lambda: rollup.additions(tables))
    appended = await append(conn, tables, way, added.begin)
    if appended.new is not tables:
        added = Early(lambda: rollup.additions(appended.new))
    appended.refused += gone
    found = dirty.found_in(appended.new, said.facts.watermarks)
    ended: AsyncCursor | None = None
    with named():
        async with conn.pipeline():
            await send_few(conn, tables, few_of(tables, way))
            await dirty.mark_minutes(conn, found)
            folded = await fold(conn, appended.new, added)
            await receipts.move_on(conn, claimed, places)
            answers = _answers(claimed, places, appended)
            as_guessed = all(len(one.items) == answer.stored for one, answer, _ in answers)
            letters = [(one, letter) for one, _, own in answers for letter in own]
            if as_guessed and not letters and not found and folded.frozen is None:
                ended = await conn.execute(end)
    if ended is None:
        await freeze(conn, folded)
        await dirty.mark_hours(conn, found)
        for one, answer, _ in answers:
            await receipts.fill(conn, one, answer)
        await receipts.keep_letters(conn, letters)
        ended = await conn.execute(end)
    _check_ended(ended, end)
    said.receipts |= {key_of(one): answer for one, answer, _ in answers}
    said.tables = [table for table, items in appended.new.items() if items]
    said.changed = any(cursor.rowcount > 0 for cursor in folded.told)


def _answers(
    claimed: Sequence[Prepared], places: dict[int, Place], appended: Appended
) -> list[tuple[Prepared, Stored, list[DeadLetter]]]:
    """What each batch's receipt is to say, and what of it is kept as dead letters."""
    answers = []
    stored = Counter(i.origin.place for items in appended.new.values() for i in items)
    for one in claimed:
        place = one.origin.place
        refused = [(item, why) for item, why in appended.refused if item.origin.place == place]
        own = [*one.batch.unread, *(one.batch.letter(i.index, why) for i, why in refused)]
        own.sort(key=lambda letter: letter.index)
        count = stored[place]
        answer = Stored(
            stored=count,
            duplicates=len(one.items) - count - len(refused),
            unread=[Unread(index=letter.index, reason=letter.reason) for letter in own],
            contiguous=places[one.origin.instance_id].contiguous,
        )
        answers.append((one, answer, own))
    return answers


@asynccontextmanager
async def _rolled_back_on_error(conn: AsyncConnection) -> AsyncIterator[None]:
    """End a transaction that was begun by a statement of its own, in a pipeline."""
    try:
        yield
    except BaseException:
        if not conn.closed and conn.info.transaction_status is not TransactionStatus.IDLE:
            try:
                # The method, and no statement: it also forgets which statements were prepared, of
                # which those of a pipeline that was cut short were not.
                await conn.rollback()
            except psycopg.Error as error:
                # The pool gives up a connection that comes back like this.
                log.warning("a transaction was not rolled back: %s", error)
        raise


def _check_ended(ended: AsyncCursor, end: str = _COMMIT) -> None:
    """Postgres answers COMMIT of a transaction that has failed with ROLLBACK, and no error."""
    if ended.statusmessage != end:
        raise psycopg.errors.InFailedSqlTransaction(f"not committed: {ended.statusmessage}")


async def _parted(
    conn: AsyncConnection, claimed: Sequence[Prepared]
) -> tuple[Tables, list[tuple[Item, str]]]:
    """The rows to write, and apart those of days whose raw rows are dropped, with the reason.

    Such days are within the time that is accepted once the retention was raised. Nothing can tell
    whether an event of theirs was stored before, nor derive its hour again with the others. Call it
    while the watermarks are shared: a drop writes down its day under the same lock.
    """
    tables = joined([one.tables for one in claimed])
    if all(one.batch.oldest >= one.origin.received_at - _NEVER_DROPPED for one in claimed):
        return tables, []
    row = await (await conn.execute(_DROPPED)).fetchone()
    dropped_before: datetime | None = row[0] if row else None
    if dropped_before is None:
        return tables, []
    kept: Tables = {}
    gone: list[tuple[Item, str]] = []
    why = f"occurred_at: raw events before {dropped_before:%Y-%m-%d} UTC are dropped already"
    for name, items in tables.items():
        gone += [(item, why) for item in items if item.event.occurred_at < dropped_before]
        if left := [item for item in items if item.event.occurred_at >= dropped_before]:
            kept[name] = left
    return kept, gone
