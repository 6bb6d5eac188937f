"""A database restored from a backup, and gateways that were told more (design 5.1, 5.2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uvicorn
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected

from controlplane.actions import gateways
from controlplane.actions.actor import SYSTEM
from controlplane.asgi import application
from controlplane.models import AuditEntry, Revision
from controlplane.wire.events import Attempt
from gateway.agent import Agent
from gateway.config import Config, ControlPlane, Listener, Provider, Route, Target
from tests import builders
from tests.controlplane.test_watch import force, token
from tests.gateway import build
from tests.gateway.waiting import until

__all__ = ["token"]

PATIENCE_S = 60.0


@pytest.fixture
async def url(token: str) -> AsyncIterator[str]:
    """The control plane on a socket, in this loop; what a lifespan starts the fixtures have."""
    config = uvicorn.Config(application, port=0, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started, PATIENCE_S)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = server.force_exit = True
    await serving


@asynccontextmanager
async def gateway(tmp_path: Path, url: str, token: str, host: str = "h") -> AsyncIterator[Agent]:
    """One worker of ``eu-1``, in step with the control plane."""
    settings = Config(
        gateway=Listener("eu-1", data_dir=tmp_path),
        control_plane=ControlPlane(url, token),
        providers=(Provider("north", "http://north.test"),),
        routes=(Route("fast", (Target(build.EAST),)),),
    )
    async with Agent(settings, host=host) as agent:
        await until(lambda: agent.live.in_force.generation > 0, PATIENCE_S)
        yield agent


def rows(statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


query = sync_to_async(rows)


def tables() -> list[str]:
    return [
        row[0]
        for row in rows(
            "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
        )
    ]


@sync_to_async
def back_up() -> None:
    rows("DROP SCHEMA IF EXISTS backup CASCADE")
    rows("CREATE SCHEMA backup")
    for table in tables():
        rows(f"CREATE TABLE backup.{table} AS TABLE public.{table}")


@sync_to_async
def restore() -> None:
    """Every table as it was, in one transaction; as a replica, so that no trigger objects."""
    work = "".join(
        f"DELETE FROM public.{table};"
        f"INSERT INTO public.{table} OVERRIDING SYSTEM VALUE SELECT * FROM backup.{table};"
        for table in tables()
    )
    role = "SET LOCAL session_replication_role = replica;"
    for tries_left in reversed(range(5)):
        try:
            rows(f"BEGIN; {role} {work} COMMIT; DROP SCHEMA backup CASCADE")
        except OperationalError as error:
            # The gateway goes on reporting, and its rows are locked in another order than ours.
            rows("ROLLBACK")
            if not isinstance(error.__cause__, DeadlockDetected) or not tries_left:
                raise
        else:
            return


async def stored() -> dict[UUID, int]:
    """How often each attempt is stored."""
    return dict(await query("SELECT id, count(*) FROM attempt GROUP BY id"))


async def report(agent: Agent, count: int) -> list[Attempt]:
    """Append attempts, each its own batch, and wait until the control plane has them."""
    made = []
    for _ in range(count):
        made.append(build.attempt(at=builders.now()))
        agent.spool.append(made[-1])
        agent.spool.seal()
    await in_store(made)
    return made


async def in_store(made: list[Attempt]) -> None:
    """Wait until all of these are stored, each once."""
    wanted = {one.id: 1 for one in made}
    async with asyncio.timeout(PATIENCE_S):
        while {u: n for u, n in (await stored()).items() if u in wanted} != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def epoch_now() -> str:
    return str(Revision.objects.get(id=1).epoch)


def minted_now() -> list[str]:
    return [entry.reason for entry in AuditEntry.objects.filter(action="new_epoch")]


epoch, minted = sync_to_async(epoch_now), sync_to_async(minted_now)


async def test_what_a_restored_backup_lacks_is_stored_again_exactly_once(
    tmp_path: Path, url: str, token: str
) -> None:
    async with gateway(tmp_path, url, token) as agent:
        first = await report(agent, 3)
        old = await epoch()
        await back_up()
        lost = await report(agent, 4)
        await force(provider="north")
        await until(lambda: agent.live.in_force.items == 1, PATIENCE_S)
        told = agent.live.in_force.generation
        await restore()
        assert len(await stored()) == 3
        later = await report(agent, 1)
        await in_store([*first, *lost, *later])
        new = await epoch()
        assert new != old
        await until(lambda: agent.live.in_force.epoch == new, PATIENCE_S)
        # The restored database has fewer revisions: a lower generation is taken, with its epoch.
        assert agent.live.in_force.generation < told
        assert agent.live.in_force.items == 0
        # Once more after everything has settled: nothing is sent or minted for ever.
        last = await report(agent, 1)
        await in_store([*first, *lost, *later, *last])
        assert len(await minted()) == 1
        (numbers,) = await query("SELECT contiguous_seq, highest_seq FROM instance")
        assert numbers[0] == numbers[1]
        assert not len(agent.spool.outbox)


async def test_an_idle_gateway_finds_a_lack_of_receipts_by_its_report(
    tmp_path: Path, url: str, token: str
) -> None:
    async with gateway(tmp_path, url, token) as agent:
        await report(agent, 1)
        await back_up()
        lost = await report(agent, 3)
        await restore()
        agent.live.on_change()
        await in_store(lost)
        assert len(await minted()) == 1


async def test_batches_alone_find_a_lack_of_receipts(tmp_path: Path, url: str, token: str) -> None:
    async with gateway(tmp_path, url, token) as agent:
        agent.live.on_change = lambda: None
        await report(agent, 1)
        await back_up()
        lost = await report(agent, 3)
        await restore()
        later = await report(agent, 1)
        await in_store([*lost, *later])
        (why,) = await minted()
        assert "was given the receipt of batch" in why


async def test_a_gateway_started_after_the_restore_sends_what_the_old_boot_kept(
    tmp_path: Path, url: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.agent.ADOPT_EVERY_S", 0.1)
    async with gateway(tmp_path, url, token) as agent:
        await report(agent, 1)
        await back_up()
        lost = await report(agent, 3)
    await restore()
    async with gateway(tmp_path, url, token, host="h2"):
        await in_store(lost)
        assert len(await minted()) == 1


async def test_a_restored_database_with_far_fewer_items_wipes_nothing_silently(
    tmp_path: Path, url: str, token: str
) -> None:
    async with gateway(tmp_path, url, token) as agent:
        await report(agent, 1)
        for number in range(6):
            await sync_to_async(builders.circuit)(f"p{number}", "large", "")
        await back_up()
        for number in range(6):
            await force(provider=f"p{number}")
        await until(lambda: agent.live.in_force.items == 6, PATIENCE_S)
        lost = await report(agent, 2)
        await restore()
        later = await report(agent, 1)
        await in_store([*lost, *later])
        new = await epoch()
        refused = "SELECT refused_generation, refused_reason FROM instance"
        async with asyncio.timeout(PATIENCE_S):
            while not (await query(refused))[0][0]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "another epoch has 0 items where 6 are in force" in (await query(refused))[0][1]
        assert (agent.live.in_force.items, agent.live.in_force.epoch != new) == (6, True)
        allow = sync_to_async(gateways.allow_shrink)
        await allow(actor=SYSTEM, name="eu-1", reason="the backup is right", now=builders.now())
        await until(lambda: agent.live.in_force.epoch == new, PATIENCE_S)
        assert agent.live.in_force.items == 0
        assert len(await minted()) == 1
