"""Control-plane cases about telemetry: events through the real door into a real database.

A case's times are moved so that its last arrival is now; a case's ``/ingest`` is our
``/api/v1/events``; its gateways get a token each. Results are read back from Postgres.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import sys
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit
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
from tests.cases.adapters.control_plane_people import Api
from tests.controlplane.ingest.batches import attempt, batch, transition
from tests.controlplane.ingest.conftest import Sender, new_sender

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024
STATES = {"open": "Open", "closed": "Closed", "half_open": "HalfOpen"}
BACK = {ours: theirs for theirs, ours in STATES.items()}
_LOST: dict[str, Any] = {"served": False, "tokens": None}
# A call that its gateway never saw end is reported under the same id as an end.
ENDS: dict[str, dict[str, Any]] = {
    "succeeded": {"verdict": "success", "reason": ""},
    "failed": {"verdict": "permanent", "reason": "server_error", "served": False},
    "timed_out": _LOST | {"verdict": "retryable", "reason": "timeout", "billing": "unknown"},
    "cancelled": _LOST | {"verdict": "client_cancelled", "reason": "client_disconnected"},
    "running": _LOST
    | {
        "verdict": "retryable",
        "reason": "gateway_died",
        "billing": "unknown",
        "ended_ms": None,
    },
}
# Other words for the same ends.
SYNONYMS = {
    "success": "succeeded",
    "completed": "succeeded",
    "error": "failed",
    "failure": "failed",
    "timeout": "timed_out",
    "canceled": "cancelled",
    "started": "running",
    "pending": "running",
    "in_progress": "running",
}


class Fleet:
    """The gateways that a case names, and the batches each has sent."""

    def __init__(self) -> None:
        self.senders: dict[str, Sender] = {}
        self._sent: dict[tuple[str, UUID], int] = {}

    async def sender(self, name: str) -> Sender:
        if name not in self.senders:
            self.senders[name] = await sync_to_async(new_sender)()
        return self.senders[name]

    async def deliver(self, gateway: str, *events: dict[str, Any], boot: str = "") -> Answer:
        """Send the events as a batch of their own, the way a client that batches anew would.

        ``boot`` names one of the processes that ran in the gateway's slot, one after another.
        """
        process = UUID(int=1 + zlib.crc32(boot.encode()))
        number = self._sent[gateway, process] = self._sent.get((gateway, process), 0) + 1
        sender = await self.sender(gateway)
        return await sender.post(batch(*events, seq=number, boot=process))


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


def arrived(said: dict[str, Any]) -> str:
    """When a record came; one without that came when it happened."""
    return str(said.get("received_at") or said["occurred_at"])


async def ordered_events(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Transitions or attempts, delivered one batch each in the order of their arrival."""
    if "attempts" in given:
        return await ordered_attempts(given, fleet)
    events = sorted(given["events"], key=lambda e: datetime.fromisoformat(arrived(e)))
    at = moved([arrived(e) for e in events])
    answers = []
    for place, said in enumerate(events):
        when = at(said.get("occurred_at") or arrived(said))
        circuit = {"provider": said["breaker"]} | {
            name: said[name] for name in ("model", "region") if name in said
        }
        change = transition(said["seq"], STATES[said["to"].replace("-", "_")], when, **circuit)
        change["id"] = id_of(said.get("event_id") or f"event {place}", when)
        boot = str(said.get("boot") or said.get("instance") or "")
        answers.append(await fleet.deliver(said.get("gateway", "gw"), change, boot=boot))
    state: dict[str, str] = {}
    history = 0
    for name, sender in fleet.senders.items():
        history += await sender.count("transition")
        # Of several processes in a slot the one that changed last.
        rows = await sender.query(
            "SELECT c.provider, s.state FROM circuit_state s JOIN circuit c ON c.id = s.circuit_id"
            " WHERE s.gateway_id = %s ORDER BY s.since",
            [sender.gateway_id],
        )
        state |= {f"{name}/{provider}": BACK[now] for provider, now in rows}
    return {"state": state} | counted(history, answers)


def counted(history: int, answers: list[Answer]) -> dict[str, Any]:
    """How many records were kept, and what each delivery was answered."""
    statuses = [answer.status for answer in answers]
    return {
        "history_rows": history,
        "rows": history,
        "http_statuses": statuses,
        "http_status_second": statuses[1] if len(statuses) > 1 else None,
        "duplicates": sum(answer.json().get("duplicates", 0) for answer in answers),
        "dead_letters": sum(len(answer.json().get("unread", ())) for answer in answers),
    }


async def ordered_attempts(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Records of attempts; a later record of the same attempt comes under the same id."""
    records = sorted(given["attempts"], key=lambda a: datetime.fromisoformat(arrived(a)))
    at = moved([arrived(record) for record in records])
    begun: dict[str, datetime] = {}
    answers = []
    ended = {r["attempt_id"] for r in records if _end_of(r) != "running"}
    for place, record in enumerate(records):
        name, status = record["attempt_id"], _end_of(record)
        later = {r["attempt_id"] for r in records[place + 1 :] if _end_of(r) != "running"}
        if status == "running" and name in ended & later:
            # Of a call that goes on the gateway keeps the begin mark on its disk and sends nothing.
            begun.setdefault(name, at(arrived(record)) - timedelta(seconds=2))
            continue
        when = begun.setdefault(name, at(arrived(record)) - timedelta(seconds=2))
        said = attempt(when, route=name, **ENDS[status]) | {"id": id_of(name, when)}
        answers.append(await fleet.deliver(record.get("gateway", "gw"), said))
    found: dict[str, str] = {}
    history = 0
    ends = {(end["verdict"], end["reason"]): name for name, end in ENDS.items()}
    for sender in fleet.senders.values():
        rows = await sender.rows("attempt", "route, verdict, reason")
        history += len(rows)
        found |= {route: ends[verdict, reason] for route, verdict, reason in rows}
    return {"status": found} | counted(history, answers)


def _end_of(record: dict[str, Any]) -> str:
    status = record.get("status", "succeeded")
    return SYNONYMS.get(status, status)


async def skewed_clock(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """One attempt whose time is away from the control plane's."""
    at = moved([given["now"]])
    answer = await fleet.deliver("gw", attempt(at(given["occurred_at"])))
    stored = answer.status == 200 and answer.json().get("stored") == 1
    sender = fleet.senders["gw"]
    ((late, skewed),) = await sender.rows("receipt", "late, skewed")
    letters = [reason for (reason,) in await sender.rows("dead_letter", "reason")]
    return {
        "stored": stored,
        "flagged": "late" if late else "skewed" if skewed else "dead_letter" if letters else None,
        "status": answer.status,
        "reason": letters[0] if letters else None,
    }


async def posted(given: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """A request with the path, the body and the headers that the case describes."""
    if given.get("method") == "GET":
        return await sync_to_async(searched)(given["path"])
    sender = await fleet.sender("gw")
    path, body = addressed(given)
    headers = {"content-type": "application/json"}
    encoding = (given.get("generate") or {}).get("encoding") or given.get("encoding")
    if encoding and encoding != "identity":
        headers["content-encoding"] = encoding
    headers |= {name.lower(): value for name, value in (given.get("headers") or {}).items()}
    known = given.get("auth", "token") is not None
    tracemalloc.start()
    if path == EVENTS:
        if known:
            headers["authorization"] = f"Bearer {sender.token}"
        status = (
            await call(given.get("method") or "POST", path, body=body, headers=headers)
        ).status
    else:
        status = await sync_to_async(forced)(path, body, known, headers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = [
        *await sender.query("SELECT provider || model || region FROM circuit"),
        *await sender.query("SELECT reason || provider || model FROM override"),
        *await sender.rows("attempt", "tenant || route || key"),
        *await sender.rows("dead_letter", "reason"),
    ]
    return {
        "status": status,
        "peak_memory_mb": peak / MIB,
        "stored_contains_nul": any("\0" in text for (text,) in kept),
        "stored_rows": await sender.count("attempt"),
    }


EVENTS = "/api/v1/events"
# A person's write that a case calls by another name; the rest of its words are the body's.
FORCE = re.compile(r"/(?:circuits|breakers)/(?P<name>.+)/force/?")


def forced(path: str, body: bytes, known: bool, headers: dict[str, str]) -> int:
    """The status of a person's write."""
    caller = Api("op", Role.OPERATOR if known else None)
    headers.pop("content-type")
    return int(caller.send("POST", path, body, **headers).status_code)


def addressed(given: dict[str, Any]) -> tuple[str, bytes]:
    """Path and body of the case's request at our own doors."""
    path = given.get("path") or "/ingest"
    force = FORCE.fullmatch(path)
    if not force:
        if path.strip("/") not in ("ingest", "events", "api/v1/events"):
            raise LookupError(f"no part answers {given.get('method')} {path} yet")
        return EVENTS, built(given, lambda fields: batch(attempt(**fields)))
    if "generate" not in given and "json" not in given:
        return "/api/v1/overrides", built(given, dict)
    provider, _, model = unquote(force["name"]).partition("/")
    wish = {"mode": "ForceOpen", "reason": "case", "expiresIn": "10m"}
    wish |= {"provider": provider, "model": model}
    return "/api/v1/overrides", built(given, lambda fields: wish | fields)


def searched(path: str) -> dict[str, Any]:
    """A search of the case as the page and the API take one: the same words in every filter."""
    words = [part.partition("=")[2] for part in urlsplit(path).query.split("&") if part]
    browser = Client()
    browser.force_login(builders.product_person("searcher", Role.VIEWER))
    if "%" in urlsplit(path).path:
        # A name in the case's path stands in the paths of ours too.
        name = urlsplit(path).path.strip("/").partition("/")[2]
        asked = [f"{page}/{name}" for page in ("/circuits", "/tasks", "/api/v1/circuits")]
    else:
        asked = [f"{page}={word}" for page in SEARCHES for word in words]
    statuses = [browser.get(one).status_code for one in asked]
    return {"status": statuses, "statuses": statuses}


# Everywhere that a person's words are looked for; the API's circuits have no filter, and say so.
SEARCHES = ("/circuits?q", "/audit?q", "/find?q", "/?q", "/api/v1/audit?q", "/api/v1/audit?actor")


def built(given: dict[str, Any], around: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """The bytes of a case's body; its JSON is laid into one of ours by ``around``."""
    plan = given.get("generate")
    if plan is not None:
        return packed(plan) if "plain_bytes" in plan else generated(plan, around)
    if "body_hex" in given:
        return bytes.fromhex(given["body_hex"])
    if "body_base64" in given:
        return base64.b64decode(given["body_base64"])
    if "body" in given:
        text = given["body"] if isinstance(given["body"], str) else json.dumps(given["body"])
        return text.encode("utf-8", "surrogatepass")
    # The ordinary writer: msgspec's own refuses half of a surrogate pair, which is what is tried.
    return json.dumps(around(given["json"])).encode()


def generated(plan: dict[str, Any], around: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """JSON of a depth, or a number of so many digits: the ``field`` of a whole body, or alone."""
    if "json_depth" in plan:
        inner = {
            "object": ('{"a":', "1", "}"),
            "array": ("[", "", "]"),
            "mixed": ('{"a":[', "", "]}"),
        }[plan.get("kind") or "array"]
        value = inner[0] * plan["json_depth"] + inner[1] + inner[2] * plan["json_depth"]
    elif "digits" in plan:
        value = "9" * plan["digits"]
    else:
        raise LookupError(f"no part builds {sorted(plan)} yet")
    if not plan.get("field"):
        return value.encode()
    return json.dumps(around({plan["field"]: "(here)"})).replace('"(here)"', value).encode()


def packed(plan: dict[str, Any]) -> bytes:
    """Many bytes in few, packed in each of the encodings, one after another."""
    fill = plan.get("fill_byte", "a").encode("latin-1")
    encoding = plan.get("encoding") or "identity"
    if encoding in ("gzip", "x-gzip", "zstd"):
        # Members one after another unpack to the whole, and one is quickly made.
        whole, rest = divmod(plan["plain_bytes"], 64 * MIB)
        pack = PACKERS[encoding]
        return pack(fill * (64 * MIB)) * whole + (pack(fill * rest) if rest else b"")
    body = fill * plan["plain_bytes"]
    for one in encoding.split(","):
        body = PACKERS[one.strip()](body)
    return body


def _brotli_like(body: bytes) -> bytes:
    """No brotli here: what counts is that the name alone is refused, before a byte is read."""
    return body[:MIB]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "br": _brotli_like,
    "identity": bytes,
}


KINDS = {
    "event_order": answered(ordered_events),
    "duplicate_event": answered(ordered_events),
    "clock_skew": answered(skewed_clock),
    "zip_bomb": answered(posted),
    "deep_json": answered(posted),
    "nul_text": answered(posted),
}
