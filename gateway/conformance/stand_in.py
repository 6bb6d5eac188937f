"""A stand-in control plane on loopback that checks a gateway written in any language.

Invariants: it takes any bearer token, stores nothing, and is difficult on purpose: of each boot the
second batch is first answered 503 with ``Retry-After``, and the third one is taken without an
answer. A rule that a gateway breaks once is reported as broken.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from controlplane.wire.events import AnyEvent, Batch, Receipt, Transition, id_matches, nul_field
from controlplane.wire.status import InstanceStatus

RETRY_AFTER_S = 2
MOST_BYTES = 4 * 2**20
EPOCH = "conformance"
HASH = "0" * 16

RULES = {
    "token": "every request carries Authorization: Bearer, and no URL a token",
    "batch": "a batch can be read, is at most 4 MiB and 5,000 events, and no event is unreadable",
    "id": "an event's id is a UUIDv7 of the millisecond of its occurred_at",
    "seq": "a boot's batches count from 1 without a hole",
    "same": "a batch that is sent again holds the same events",
    "patience": "after 503 a gateway waits at least Retry-After",
    "again": "a batch without an answer is sent again",
    "number": "a breaker's transitions count up by 1 for each instance and circuit",
    "status": "status reports can be read, their seq rises, and they come every 10 s",
}


@dataclass(slots=True)
class Boot:
    """What is known of one instance."""

    highest: int = 0
    contents: dict[int, str] = field(default_factory=dict)
    not_before: dict[int, float] = field(default_factory=dict)
    hung_up: set[int] = field(default_factory=set)
    numbers: dict[tuple[str, str, str], int] = field(default_factory=dict)
    report: int = 0
    reported_at: float | None = None


class StandIn:
    """The rules, and what has been seen of each."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.broken: dict[str, str] = {}
        self._boots: dict[str, Boot] = {}

    def _judge(self, rule: str, holds: bool, why: str) -> None:
        self.seen.add(rule)
        if not holds and rule not in self.broken:
            self.broken[rule] = why
            print(f"BROKEN  {RULES[rule]}\n        {why}", flush=True)

    def _boot(self, boot_id: str) -> Boot:
        return self._boots.setdefault(boot_id, Boot())

    def _check_token(self, request: web.Request) -> None:
        bearer = request.headers.get("Authorization", "").startswith("Bearer ")
        self._judge("token", bearer, f"{request.method} {request.path} came without")
        in_url = any("token" in name.lower() for name in request.query)
        self._judge("token", not in_url, f"{request.path} has one in its URL")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/v1/events``."""
        self._check_token(request)
        raw = await request.read()
        self._judge("batch", len(raw) <= MOST_BYTES, f"a body of {len(raw)} bytes")
        # aiohttp has unpacked gzip already where it knows the encoding.
        body = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        try:
            batch = msgspec.json.decode(body, type=Batch)
        except msgspec.DecodeError as error:
            self._judge("batch", False, str(error))
            return web.json_response({"status": 422, "detail": str(error)}, status=422)
        boot = self._boot(str(batch.instance))
        self._judge_events(batch, boot)
        return await self._answer(request, batch, boot)

    def _judge_events(self, batch: Batch, boot: Boot) -> None:
        content = hashlib.sha256(msgspec.json.encode(batch.events)).hexdigest()
        known = boot.contents.setdefault(batch.seq, content)
        self._judge("same", known == content, f"batch {batch.seq} has changed")
        follows = batch.seq <= boot.highest + 1
        self._judge("seq", follows, f"{batch.seq} came after {boot.highest}")
        first = batch.seq > boot.highest
        boot.highest = max(boot.highest, batch.seq)
        for event in batch.events:
            self._judge("batch", nul_field(event) is None, f"a NUL in event {event.id}")
            matches = id_matches(event.id, event.occurred_at)
            self._judge("id", matches, f"event {event.id} of {event.occurred_at}")
            if first:
                self._judge_number(event, boot)

    def _judge_number(self, event: AnyEvent, boot: Boot) -> None:
        if isinstance(event, Transition):
            circuit = (event.provider, event.model, event.region)
            before = boot.numbers.get(circuit)
            boot.numbers[circuit] = event.number
            rises = before is None or event.number == before + 1
            self._judge("number", rises, f"{event.number} after {before} on {circuit}")

    async def _answer(self, request: web.Request, batch: Batch, boot: Boot) -> web.StreamResponse:
        now = time.monotonic()
        if batch.seq == 2 and batch.seq not in boot.not_before:
            boot.not_before[batch.seq] = now + RETRY_AFTER_S
            return web.json_response(
                {"status": 503}, status=503, headers={"Retry-After": str(RETRY_AFTER_S)}
            )
        if batch.seq in boot.not_before:
            waited = now >= boot.not_before[batch.seq] - 0.05
            self._judge("patience", waited, f"batch {batch.seq} came too early")
        if batch.seq == 3:
            if batch.seq not in boot.hung_up:
                boot.hung_up.add(batch.seq)
                if request.transport is not None:
                    request.transport.close()
                return web.Response(status=500)
            self._judge("again", True, "")
        if batch.seq > 3 and 3 in boot.hung_up:
            self._judge("again", "again" in self.seen, f"{batch.seq} came, and 3 not again")
        receipt = Receipt(
            seq=batch.seq,
            epoch=EPOCH,
            contiguous=boot.highest,
            generation=1,
            server_time=datetime.now(UTC),
            stored=len(batch.events),
        )
        return web.Response(body=msgspec.json.encode(receipt), content_type="application/json")

    async def config(self, request: web.Request) -> web.StreamResponse:
        """``GET /api/v1/gateways/{name}/config``: one snapshot that changes nothing."""
        self._check_token(request)
        now = datetime.now(UTC).isoformat()
        head: dict[str, Any] = {"epoch": EPOCH, "revision": 1, "generation": 1, "hash": HASH}
        head |= {"server_time": now, "instances": 1}
        spec: dict[str, list[object]] = {
            name: [] for name in ("policies", "budgets", "overrides", "routes", "prices")
        }
        whole = head | {"gateway": request.match_info["name"], "items": 0, "spec": spec}
        whole["remaining_s"] = {}
        if request.query.get("watch") != "1":
            return web.json_response(whole, headers={"ETag": f'"1-{HASH}"'})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        text = msgspec.json.encode(whole).decode()
        await response.write(f"id: 1\nevent: snapshot\ndata: {text}\n\n".encode())
        while True:
            await asyncio.sleep(10)
            head["server_time"] = datetime.now(UTC).isoformat()
            text = msgspec.json.encode(head).decode()
            await response.write(f"id: 1\nevent: bookmark\ndata: {text}\n\n".encode())

    async def status(self, request: web.Request) -> web.StreamResponse:
        """``PATCH …/instances/{boot}/status``."""
        self._check_token(request)
        try:
            report = msgspec.json.decode(await request.read(), type=InstanceStatus)
        except msgspec.DecodeError as error:
            self._judge("status", False, str(error))
            return web.json_response({"status": 422, "detail": str(error)}, status=422)
        boot = self._boot(request.match_info["boot"])
        self._judge("status", report.seq > boot.report, f"{report.seq} after {boot.report}")
        now = time.monotonic()
        if boot.reported_at is not None:
            silent_s = now - boot.reported_at
            self._judge("status", silent_s <= 12, f"{silent_s:.0f} s without one")
        boot.report, boot.reported_at = max(boot.report, report.seq), now
        head = {"generation": 1, "hash": HASH, "epoch": EPOCH, "instances": 1}
        return web.json_response(head | {"server_time": datetime.now(UTC).isoformat()})

    def summary(self) -> str:
        """Every rule: held, broken, or never put to the test."""
        lines = []
        for rule, sentence in RULES.items():
            word = "BROKEN" if rule in self.broken else "ok" if rule in self.seen else "unseen"
            lines.append(f"{word:7} {sentence}")
        return "\n".join(lines)


def application(stand_in: StandIn) -> web.Application:
    """The stand-in's routes."""
    app = web.Application(client_max_size=32 * 2**20)
    app.router.add_post("/api/v1/events", stand_in.events)
    app.router.add_get("/api/v1/gateways/{name}/config", stand_in.config)
    app.router.add_patch("/api/v1/gateways/{name}/instances/{boot}/status", stand_in.status)
    return app


async def serve(port: int, seconds: float | None) -> int:
    """Serve until the time is over or Ctrl-C; 0 when no rule was broken, 2 when none was seen."""
    stand_in = StandIn()
    runner = web.AppRunner(application(stand_in), shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(
        f"Point a gateway's control plane at http://127.0.0.1:{port}", file=sys.stderr, flush=True
    )
    try:
        await asyncio.sleep(seconds if seconds is not None else 10**9)
    except asyncio.CancelledError:
        pass
    finally:
        await runner.cleanup()
    print(stand_in.summary(), flush=True)
    return 1 if stand_in.broken else 0 if stand_in.seen else 2
