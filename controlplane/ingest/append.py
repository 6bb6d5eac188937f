"""Rows in, the items that are new out.

Invariant: an event is stored once, whatever batches bring it. The straight way is binary COPY under
a savepoint; events that are there already (a client that batches anew) turn it into an insert that
says which rows are new, and in a batch alone a row that Postgres cannot hold is parted from its
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, sql

from controlplane.ingest.rows import TABLES, Item, TableRows


@dataclass(slots=True)
class Appended:
    """What became of the rows: new ones, and those that could not be held, with the reason."""

    new: list[Item] = field(default_factory=list)
    refused: list[tuple[Item, str]] = field(default_factory=list)


class NoPartition(Exception):
    """A day has no partition yet. Nothing of the batch is stored; make the days and try again."""


def _copy_statement(table: str) -> sql.Composed:
    names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in TABLES[table])
    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table), names)


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


_COPY = {table: _copy_statement(table) for table in TABLES}
_COPY_TYPES = {table: [kind for _, kind in columns] for table, columns in TABLES.items()}
_INSERT = {table: _insert_statement(table) for table in TABLES}


async def append(conn: AsyncConnection, tables: dict[str, TableRows], *, alone: bool) -> Appended:
    """Write all rows inside the caller's transaction, each table's in the order given.

    Raises ``NoPartition``, and ``psycopg.DataError`` unless ``alone``.
    """
    try:
        async with conn.transaction():
            for table, content in tables.items():
                await _copy(conn, table, content.rows)
        return Appended(new=[item for content in tables.values() for item in content.items])
    except psycopg.errors.UniqueViolation:
        pass
    except psycopg.errors.CheckViolation as error:
        _raise_if_no_partition(error)
        if not alone:
            raise psycopg.DataError(str(error)) from error
    except psycopg.DataError:
        if not alone:
            raise
    appended = Appended()
    for table, content in tables.items():
        await _append_known(conn, table, content, appended, alone=alone)
    return appended


async def _append_known(
    conn: AsyncConnection, table: str, content: TableRows, appended: Appended, *, alone: bool
) -> None:
    try:
        async with conn.transaction():
            new = await _insert(conn, table, content.rows)
        appended.new.extend(
            item
            for item in content.items
            if (item.origin.gateway_id, item.event.id, item.event.occurred_at) in new
        )
        return
    except psycopg.errors.CheckViolation as error:
        _raise_if_no_partition(error)
        if not alone:
            raise psycopg.DataError(str(error)) from error
    except psycopg.DataError:
        if not alone:
            raise
    for item, row in zip(content.items, content.rows, strict=True):
        try:
            async with conn.transaction():
                if await _insert(conn, table, [row]):
                    appended.new.append(item)
        except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
            appended.refused.append((item, error.diag.message_primary or type(error).__name__))


async def _copy(conn: AsyncConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    async with conn.cursor() as cursor, cursor.copy(_COPY[table]) as copy:
        copy.set_types(_COPY_TYPES[table])
        for row in rows:
            await copy.write_row(row)


async def _insert(
    conn: AsyncConnection, table: str, rows: list[tuple[Any, ...]]
) -> set[tuple[int, UUID, datetime]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    cursor = await conn.execute(_INSERT[table], columns)
    return set(await cursor.fetchall())


def _raise_if_no_partition(error: psycopg.errors.CheckViolation) -> None:
    """A row without a partition is a check violation that names no constraint."""
    if error.diag.constraint_name is None:
        raise NoPartition(error.diag.message_primary) from error
