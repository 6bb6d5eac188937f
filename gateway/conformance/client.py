"""A control plane as one gateway sees it: requests, whole answers, and small batches to send."""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from controlplane.wire.events import mint_id

Json = dict[str, Any]


class Broken(AssertionError):
    """The control plane did not do what the page says."""


def must(holds: bool, why: str) -> None:
    """Raise ``Broken`` unless it holds."""
    if not holds:
        raise Broken(why)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Json:
        """The body as an object; ``Broken`` if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError as error:
            raise Broken(f"the body is not JSON: {self.body[:80]!r}") from error
        must(isinstance(found, dict), "the body is not an object")
        return dict(found)


class Plane:
    """The control plane under test, as one gateway sees it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str, name: str) -> None:
        self._session = session
        self.base = url.rstrip("/") + "/api/v1"
        self.name = name
        self._bearer = f"Bearer {token}"
        self._boots: list[Boot] = []

    def boot(self) -> Boot:
        """An instance that ``leave`` takes off the wall."""
        self._boots.append(Boot())
        return self._boots[-1]

    async def goodbye(self, boot: Boot) -> Reply:
        """The only status report of an instance: that it goes."""
        now = datetime.now(UTC).isoformat()
        report = {
            "slot": boot.slot,
            "seq": 1,
            "sent_at": now,
            "started_at": now,
            "config_source": "Bootstrap",
            "goodbye": True,
        }
        path = f"/gateways/{self.name}/instances/{boot.id}/status"
        return await self.call("PATCH", path, json.dumps(report).encode())

    async def leave(self) -> None:
        """Say goodbye for every instance: a silent one has a share of limits for an hour."""
        for boot in self._boots:
            await self.goodbye(boot)

    async def call(self, method: str, path: str, body: bytes | None = None, **more: str) -> Reply:
        """One request; ``more`` are headers, ``_`` for ``-``; an empty one is left out."""
        headers = {"authorization": self._bearer, "content-type": "application/json"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        given = {name: value for name, value in headers.items() if value}
        async with self._session.request(
            method, self.base + path, data=body, headers=given
        ) as answer:
            received = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, received, await answer.read())

    async def send(self, content: Any, **more: str) -> Reply:
        """Send a batch."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await self.call("POST", "/events", body, **more)

    async def accepted(self, content: Any, **more: str) -> Json:
        """Send a batch that must be accepted; its receipt."""
        reply = await self.send(content, **more)
        must(reply.status == 200, f"answered {reply.status}: {reply.body[:200]!r}")
        return reply.json()

    async def first_frame(self, path: str) -> str:
        """The first frame of a stream."""
        headers = {"authorization": self._bearer}
        async with self._session.get(self.base + path, headers=headers) as answer:
            must(answer.status == 200, f"answered {answer.status}")
            lines = []
            async for line in answer.content:
                if not line.strip():
                    break
                lines.append(line.decode())
            return "".join(lines)


def event(**fields: Any) -> Json:
    """A small attempt of now."""
    at = datetime.now(UTC)
    return {
        "kind": "attempt",
        "id": str(mint_id(at, secrets.randbits(74))),
        "occurred_at": at.isoformat(),
        "request": str(uuid.uuid4()),
        "ordinal": 1,
        "role": "first",
        "provider": "conformance",
        "model": "check",
        "verdict": "success",
        "billing": "not_billed",
        "served": True,
    } | fields


class Boot:
    """One instance that sends batches."""

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self.slot = f"conformance/{self.id[:8]}"

    def batch(self, seq: int, *events: Json, **more: Any) -> Json:
        """Batch ``seq``."""
        return {
            "instance": self.id,
            "slot": self.slot,
            "seq": seq,
            "sent_at": datetime.now(UTC).isoformat(),
            "events": list(events),
        } | more
