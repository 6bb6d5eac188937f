"""Rows in, the items that are new out.

Invariant: an event is stored once, whatever batches bring it. The straight way is COPY under a
savepoint; events that are there already (a client that batches anew) turn it into an insert that
says which rows are new, and a row that Postgres cannot hold is parted from its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    return sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)


def _insert_statement(table: str) -> sql.Composed:
    columns = TABLES[table]
    return sql.SQL(
        "INSERT INTO {} ({}) SELECT * FROM unnest({})"
        " ON CONFLICT (gateway_id, id, occurred_at) DO NOTHING RETURNING id"
    ).format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns),
        sql.SQL(", ").join(sql.SQL("%s::" + kind + "[]") for _, kind in columns),
    )


_COPY = {table: _copy_statement(table) for table in TABLES}
_INSERT = {table: _insert_statement(table) for table in TABLES}


async def append(conn: AsyncConnection, tables: dict[str, TableRows]) -> Appended:
    """Write all rows inside the caller's transaction. Raises ``NoPartition``."""
    try:
        async with conn.transaction():
            for table, content in tables.items():
                await _copy(conn, table, content.rows)
        return Appended(new=[item for content in tables.values() for item in content.items])
    except psycopg.errors.UniqueViolation:
        pass
    except psycopg.errors.CheckViolation as error:
        _raise_if_no_partition(error)
    except psycopg.DataError:
        pass
    appended = Appended()
    for table, content in tables.items():
        await _append_known(conn, table, content, appended)
    return appended


async def _append_known(
    conn: AsyncConnection, table: str, content: TableRows, appended: Appended
) -> None:
    try:
        async with conn.transaction():
            new = await _insert(conn, table, content.rows)
        appended.new.extend(item for item in content.items if item.event.id in new)
        return
    except psycopg.errors.CheckViolation as error:
        _raise_if_no_partition(error)
    except psycopg.DataError:
        pass
    for item, row in zip(content.items, content.rows, strict=True):
        try:
            async with conn.transaction():
                if await _insert(conn, table, [row]):
                    appended.new.append(item)
        except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
            appended.refused.append((item, error.diag.message_primary or type(error).__name__))


async def _copy(conn: AsyncConnection, table: str, rows: list[tuple[Any, ...]]) -> None:
    async with conn.cursor() as cursor, cursor.copy(_COPY[table]) as copy:
        for row in rows:
            await copy.write_row(row)


async def _insert(conn: AsyncConnection, table: str, rows: list[tuple[Any, ...]]) -> set[UUID]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    cursor = await conn.execute(_INSERT[table], columns)
    return {found[0] async for found in cursor}


def _raise_if_no_partition(error: psycopg.errors.CheckViolation) -> None:
    """A row without a partition is a check violation that names no constraint."""
    if error.diag.constraint_name is None:
        raise NoPartition(error.diag.message_primary) from error
