"""A gateway with a token, and its door, on a real database."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from controlplane import notify
from controlplane.api.hot.auth import forget_tokens
from controlplane.models import Gateway, GatewayToken
from tests.asgi import Answer, call
from tests.controlplane.ingest.batches import encoded, now

_names = itertools.count(1)


@dataclass(frozen=True)
class Sender:
    """One gateway: sends batches and looks at what the database then holds of it."""

    gateway_id: int
    token: str

    async def post(self, content: Any, **headers: str) -> Answer:
        """Send a batch (or raw bytes) through the real door."""
        body = content if isinstance(content, bytes) else encoded(content)
        given = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        return await call("POST", "/api/v1/events", body=body, headers=given)

    async def send(self, content: Any) -> dict[str, Any]:
        """Send a batch that must be accepted; the receipt."""
        answer = await self.post(content)
        assert answer.status == 200, answer.body
        receipt: dict[str, Any] = answer.json()
        return receipt

    async def rows(self, table: str, columns: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        """This gateway's rows of an event table."""
        return await self.query(
            f"SELECT {columns} FROM {table} WHERE gateway_id = %s ORDER BY {order}",
            [self.gateway_id],
        )

    async def query(self, statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Rows of any query."""

        def run() -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall() if cursor.description else []

        return await sync_to_async(run)()

    async def count(self, table: str) -> int:
        """How many rows of this gateway a table has."""
        return int((await self.rows(table, "count(*)"))[0][0])


def new_sender() -> Sender:
    """A gateway of its own (call it in a thread that may use the ORM)."""
    token = f"token-{next(_names)}-" + "x" * 40
    gateway = Gateway.objects.create(
        name=f"gw-{next(_names)}", resource_version=1, created_at=now(), created_by="tests"
    )
    GatewayToken.objects.create(
        gateway=gateway,
        sha256=hashlib.sha256(token.encode()).digest(),
        created_at=now(),
        created_by="tests",
    )
    return Sender(gateway.pk, token)


@pytest.fixture
async def make_sender(hot_pool: None) -> AsyncIterator[Callable[[], Any]]:
    """Make gateways; their door is open while the test runs."""
    forget_tokens()
    yield sync_to_async(new_sender)
    # A debounced notification must not open a new pool after this one is closed.
    task = notify._observed._task
    if task is not None and task.get_loop() is asyncio.get_running_loop():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def sender(make_sender: Callable[[], Any]) -> Sender:
    """One gateway."""
    made: Sender = await make_sender()
    return made
