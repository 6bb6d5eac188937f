"""Control-plane cases about telemetry: events through the real door into a real database.

A case's times are moved so that its last arrival is now; a case's ``/ingest`` is our
``/api/v1/events``; its gateways get a token each. Results are read back from Postgres.
"""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from controlplane import notify
from controlplane.api.hot.auth import forget_tokens
from controlplane.models import Role
from controlplane.models.pool import close_pool
from controlplane.wire.events import mint_id
from tests import builders
from tests.asgi import Answer, call
from tests.controlplane.ingest.batches import attempt, batch, encoded, transition
from tests.controlplane.ingest.conftest import Sender, new_sender

MIB = 1024 * 1024
STATES = {"open": "Open", "closed": "Closed", "half_open": "HalfOpen"}
# A call that its gateway never saw end is reported under the same id as an end.
ENDS = {
    "succeeded": {"verdict": "success", "reason": ""},
    "failed": {"verdict": "permanent", "reason": "server_error", "served": False},
    "running": {
        "verdict": "retryable",
        "reason": "gateway_died",
        "served": False,
        "billing": "unknown",
        "tokens": None,
        "ended_ms": None,
    },
}


class Fleet:
    """The gateways that a case names, and the batches each has sent."""

    def __init__(self) -> None:
        self.senders: dict[str, Sender] = {}
        self._sent = 0

    async def sender(self, name: str) -> Sender:
        if name not in self.senders:
            self.senders[name] = await sync_to_async(new_sender)()
        return self.senders[name]

    async def deliver(self, gateway: str, *events: dict[str, Any]) -> Answer:
        """Send the events as a batch of their own, the way a client that batches anew would."""
        self._sent += 1
        sender = await self.sender(gateway)
        return await sender.post(batch(*events, seq=self._sent))


def answered(answer: Callable[[dict[str, Any], Fleet], Awaitable[dict[str, Any]]]) -> Any:
    """A case function that runs with a loop and a pool of its own."""

    def run(case: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
        forget_tokens()

        async def within() -> dict[str, Any]:
            try:
                return await answer(case["input"], Fleet())
            finally:
                task = notify._observed._task
                if task is not None and task.get_loop() is asyncio.get_running_loop():
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await close_pool()

        return asyncio.run(within())

    return run


def id_of(name: str, at: datetime) -> str:
    """The same id for the same name and time."""
    return str(mint_id(at, UUID(int=zlib.crc32(name.encode())).int))


def moved(times: list[str]) -> Callable[[str], datetime]:
    """A function that moves the case's times so that the last of ``times`` is now."""
    last = max(datetime.fromisoformat(t) for t in times)
    shift = datetime.now(UTC) - timedelta(seconds=1) - last
    return lambda text: datetime.fromisoformat(text) + shift


async def ordered_events(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Transitions or attempts, delivered one batch each in the order of their arrival."""
    if "attempts" in given:
        return await ordered_attempts(given, fleet)
    events = sorted(given["events"], key=lambda e: datetime.fromisoformat(e["received_at"]))
    at = moved([e["received_at"] for e in events])
    statuses = []
    for said in events:
        when = at(said["occurred_at"])
        change = transition(said["seq"], STATES[said["to"]], when, provider=said["breaker"])
        change["id"] = id_of(said["event_id"], when)
        statuses.append((await fleet.deliver(said["gateway"], change)).status)
    state: dict[str, str] = {}
    history = 0
    for name, sender in fleet.senders.items():
        history += await sender.count("transition")
        rows = await sender.query(
            "SELECT c.provider, s.state FROM circuit_state s JOIN circuit c ON c.id = s.circuit_id"
            " WHERE s.gateway_id = %s",
            [sender.gateway_id],
        )
        back = {ours: theirs for theirs, ours in STATES.items()}
        state |= {f"{name}/{provider}": back[now] for provider, now in rows}
    return {
        "state": state,
        "history_rows": history,
        "http_status_second": statuses[1] if len(statuses) > 1 else None,
    }


async def ordered_attempts(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Records of attempts; a later record of the same attempt comes under the same id."""
    records = sorted(given["attempts"], key=lambda a: datetime.fromisoformat(a["received_at"]))
    at = moved([record["received_at"] for record in records])
    begun: dict[str, datetime] = {}
    for record in records:
        name = record["attempt_id"]
        when = begun.setdefault(name, at(record["received_at"]) - timedelta(seconds=2))
        said = attempt(when, route=name, **ENDS[record["status"]]) | {"id": id_of(name, when)}
        await fleet.deliver("gw", said)
    rows = await fleet.senders["gw"].rows("attempt", "route, verdict, reason")
    back = {(end["verdict"], end["reason"]): name for name, end in ENDS.items()}
    return {"status": {route: back[verdict, reason] for route, verdict, reason in rows}}


async def skewed_clock(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """One attempt whose time is away from the control plane's."""
    at = moved([given["now"]])
    answer = await fleet.deliver("gw", attempt(at(given["occurred_at"])))
    stored = answer.status == 200 and answer.json().get("stored") == 1
    ((late, skewed),) = await fleet.senders["gw"].rows("receipt", "late, skewed")
    return {"stored": stored, "flagged": "late" if late else "skewed" if skewed else None}


async def posted(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """A request to the door with the body that the case describes."""
    if given.get("method") == "GET":
        return await sync_to_async(searched)(given["path"])
    if given.get("path") != "/ingest":
        raise LookupError(f"no part answers {given.get('method')} {given.get('path')} yet")
    sender = await fleet.sender("gw")
    headers = {"content-type": "application/json"}
    if given.get("auth", "token") is not None:
        headers["authorization"] = f"Bearer {sender.token}"
    encoding, body = built(given)
    if encoding:
        headers["content-encoding"] = encoding
    tracemalloc.start()
    answer = await call("POST", "/api/v1/events", body=body, headers=headers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    names = await sender.query("SELECT provider || model || region FROM circuit")
    letters = await sender.rows("dead_letter", "reason")
    return {
        "status": answer.status,
        "peak_memory_mb": peak / MIB,
        "stored_contains_nul": any("\0" in text for (text,) in [*names, *letters]),
    }


def searched(path: str) -> dict[str, Any]:
    """A search of the case as the page and the API take one: the same words in every filter."""
    words = "&".join(
        f"{name}={part.partition('=')[2]}"
        for part in urlsplit(path).query.split("&")
        for name in ("q", "provider")
    )
    browser = Client()
    browser.force_login(builders.product_person("searcher", Role.VIEWER))
    pages = ("/circuits", "/audit", "/find", "/api/v1/circuits")
    return {"status": [browser.get(f"{page}?{words}").status_code for page in pages]}


def built(given: dict[str, Any]) -> tuple[str, bytes]:
    """Content-Encoding and bytes of a case's body."""
    plan = given.get("generate")
    if plan is None:
        return "", encoded(batch(attempt(**given["json"])))
    if "json_depth" in plan:
        opened, closed = ('{"a":', "}") if plan.get("kind") == "object" else ("[", "]")
        inner = "1" if plan.get("kind") == "object" else ""
        return "", (opened * plan["json_depth"] + inner + closed * plan["json_depth"]).encode()
    # Members one after another unpack to the whole, and one is quickly made.
    member_bytes = min(plan["plain_bytes"], 64 * MIB)
    member = gzip.compress(plan["fill_byte"].encode() * member_bytes)
    return plan["encoding"], member * (plan["plain_bytes"] // member_bytes)


KINDS = {
    "event_order": answered(ordered_events),
    "duplicate_event": answered(ordered_events),
    "clock_skew": answered(skewed_clock),
    "zip_bomb": answered(posted),
    "deep_json": answered(posted),
    "nul_text": answered(posted),
}
