"""Rows in, the items that are new out.

Invariant: an event is stored once, whatever batches bring it. The straight way is binary COPY; what
it cannot do ends the transaction, and the next try takes a slower way: an insert that says which
rows are new, for events that are there already (a client that batches anew); and for a batch alone
one that parts a row that Postgres cannot hold from its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from uuid import UUID

import msgspec
import psycopg
from psycopg import AsyncConnection, sql

from controlplane.ingest.rows import TABLES, Item, Tables, row_of


@dataclass(slots=True)
class Appended:
    """What became of the rows: new ones, and those that could not be held, with the reason."""

    new: Tables = field(default_factory=dict)
    refused: list[tuple[Item, str]] = field(default_factory=list)


class NoPartition(Exception):
    """A day has no partition yet. Nothing of the batch is stored; make the days and try again."""


def _copy_statement(table: str) -> bytes:
    names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in TABLES[table])
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table), names)
    return copy.as_bytes()


def _insert_statement(table: str) -> sql.Composed:
    columns = TABLES[table]
    return sql.SQL(
        "INSERT INTO {} ({}) SELECT * FROM unnest({})"
        " ON CONFLICT (gateway_id, id, occurred_at) DO NOTHING"
        " RETURNING gateway_id, id, occurred_at"
    ).format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns),
        sql.SQL(", ").join(sql.SQL("%s::" + kind + "[]") for _, kind in columns),
    )


def _insert_few_statement(table: str) -> bytes:
    columns = TABLES[table]
    names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns)
    typed = sql.SQL(", ").join(
        sql.SQL("{} " + kind).format(sql.Identifier(name)) for name, kind in columns
    )
    insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM json_to_recordset(%s::json) AS r({})")
    return insert.format(sql.Identifier(table), names, names, typed).as_bytes()


_COPY = {table: _copy_statement(table) for table in TABLES}
_COPY_TYPES = {table: [kind for _, kind in columns] for table, columns in TABLES.items()}
_INSERT = {table: _insert_statement(table) for table in TABLES}
_INSERT_FEW = {table: _insert_few_statement(table) for table in TABLES}
# A COPY waits for Postgres three times; up to so many rows of the lesser tables go as documents in
# the pipeline of what follows instead, which was measured at a tenth of a group of small batches.
_FEW = 60


class Way(IntEnum):
    """How rows are written, from fast to forgiving."""

    COPY = 0
    INSERT = 1
    EACH = 2


async def append(
    conn: AsyncConnection, tables: Tables, way: Way, meanwhile: Callable[[], object]
) -> Appended:
    """Write all rows inside the caller's transaction, each table's in the order given.

    By ``Way.COPY`` all but those that ``few_of`` names, which ``send_few`` is to write;
    ``meanwhile`` is called, perhaps more than once, while Postgres stores a table's rows. Raises
    ``NoPartition``; ``psycopg.IntegrityError`` or ``DataError`` for what this way cannot do.
    """
    appended = Appended()
    with named():
        if way is Way.COPY:
            few = few_of(tables, way)
            for table in tables:
                if table not in few:
                    await _copy(conn, table, tables[table], meanwhile)
            appended.new = tables
            return appended
        for table, items in tables.items():
            if way is Way.INSERT:
                new = await _insert(conn, table, items)
                appended.new[table] = [item for item in items if _key(item) in new]
            else:
                await _insert_each(conn, table, items, appended)
    return appended


@contextmanager
def named() -> Iterator[None]:
    """Give a missing partition its name, ``NoPartition``."""
    try:
        yield
    except psycopg.errors.CheckViolation as error:
        _raise_if_no_partition(error)
        raise


def few_of(tables: Tables, way: Way) -> list[str]:
    """The tables that are written as documents by ``send_few``: the lesser, of few rows."""
    lesser = [table for table in tables if table != "attempt"]
    few = way is Way.COPY and all(len(tables[table]) <= _FEW for table in lesser)
    return lesser if few else []


async def send_few(conn: AsyncConnection, tables: Tables, few: Sequence[str]) -> None:
    """Write these tables in the caller's pipeline, whose end raises what ``append`` does."""
    for table in few:
        await conn.execute(_INSERT_FEW[table], (_documents(table, tables[table]),))


def _key(item: Item) -> tuple[int, UUID, datetime]:
    return item.origin.gateway_id, item.event.id, item.event.occurred_at


async def _insert_each(
    conn: AsyncConnection, table: str, items: list[Item], appended: Appended
) -> None:
    new = appended.new[table] = []
    for item in items:
        try:
            async with conn.transaction():
                if await _insert(conn, table, [item]):
                    new.append(item)
        except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
            if isinstance(error, psycopg.errors.CheckViolation):
                _raise_if_no_partition(error)
            appended.refused.append((item, error.diag.message_primary or type(error).__name__))


def _documents(table: str, items: list[Item]) -> str:
    names = [name for name, _ in TABLES[table]]
    rows = [dict(zip(names, row_of(table, item), strict=True)) for item in items]
    return msgspec.json.encode(rows).decode()


async def _copy(
    conn: AsyncConnection, table: str, items: list[Item], meanwhile: Callable[[], object]
) -> None:
    async with conn.cursor() as cursor, cursor.copy(_COPY[table]) as copy:
        copy.set_types(_COPY_TYPES[table])
        for item in items:
            await copy.write_row(row_of(table, item))
        # Postgres puts most rows in their place after the last of them has come: the loop is free.
        asyncio.get_running_loop().call_soon(meanwhile)


async def _insert(
    conn: AsyncConnection, table: str, items: list[Item]
) -> set[tuple[int, UUID, datetime]]:
    rows = [row_of(table, item) for item in items]
    columns = [list(column) for column in zip(*rows, strict=True)]
    cursor = await conn.execute(_INSERT[table], columns)
    return set(await cursor.fetchall())


def _raise_if_no_partition(error: psycopg.errors.CheckViolation) -> None:
    """A row without a partition is a check violation that names no constraint."""
    if error.diag.constraint_name is None:
        raise NoPartition(error.diag.message_primary) from error
