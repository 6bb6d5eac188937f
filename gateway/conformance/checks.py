"""Checks a control plane from outside: what ``docs/wire.md`` promises to a gateway.

Invariant: each check is one sentence of the page, run under boot ids of its own, so it may be run
against a control plane that is in use; it leaves only a few simulated events and instances that
have said goodbye.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gateway.conformance.client import Boot, Broken, Plane, event, must

SECONDS = 15.0


async def a_stranger_is_refused(plane: Plane) -> None:
    """A request without a known token is answered 401."""
    for token in ("", "Bearer conformance-nobody"):
        reply = await plane.send(b"{}", authorization=token)
        must(reply.status == 401, f"answered {reply.status}")


async def a_token_in_the_url_is_refused(plane: Plane) -> None:
    """A token in a URL is refused with 400."""
    reply = await plane.call("POST", "/events?token=conformance", b"{}")
    must(reply.status == 400, f"answered {reply.status}")


async def a_batch_gets_its_receipt(plane: Plane) -> None:
    """A batch is answered 200 with a receipt that names its seq."""
    receipt = await plane.accepted(plane.boot().batch(1, event()))
    must(receipt.get("seq") == 1, "the receipt is of another seq")
    must(receipt.get("stored") == 1, "one event was sent and not one stored")
    must(receipt.get("contiguous") == 1, "contiguous is not 1")
    for name in ("epoch", "generation", "server_time"):
        must(name in receipt, f"the receipt has no {name}")


async def a_repeat_is_answered_from_the_first(plane: Plane) -> None:
    """A repeat is answered from the first receipt and stores nothing."""
    batch = plane.boot().batch(1, event(), event())
    first, again = await plane.accepted(batch), await plane.accepted(batch)
    for name in ("seq", "stored", "duplicates", "contiguous"):
        must(first.get(name) == again.get(name), f"{name} differs")


async def a_rebatched_event_is_one(plane: Plane) -> None:
    """An event that comes again in another batch is a duplicate."""
    boot, known = plane.boot(), event()
    await plane.accepted(boot.batch(1, known))
    receipt = await plane.accepted(boot.batch(2, known, event()))
    must((receipt.get("stored"), receipt.get("duplicates")) == (1, 1), f"the receipt: {receipt}")


async def contiguous_waits_for_a_hole(plane: Plane) -> None:
    """Contiguous is the highest seq with nothing missing below it, in any order of arrival."""
    boot = plane.boot()
    seen = [(await plane.accepted(boot.batch(seq, event())))["contiguous"] for seq in (1, 3, 2)]
    must(seen == [1, 1, 3], f"seq 1, 3, 2 gave {seen}")


async def a_bad_event_costs_its_neighbours_nothing(plane: Plane) -> None:
    """An event that cannot be read stands under unread; its neighbours are stored."""
    bad = [event(ordinal=0), event(kind="prophecy"), event(id=str(uuid.uuid4()))]
    receipt = await plane.accepted(plane.boot().batch(1, event(), *bad, event()))
    must(receipt.get("stored") == 2, f"two good events, stored {receipt.get('stored')}")
    places = [one.get("index") for one in receipt.get("unread", [])]
    must(places == [1, 2, 3], f"unread names {places}")
    must(all(one.get("reason") for one in receipt["unread"]), "unread gives no reason")


async def unknown_fields_are_ignored(plane: Plane) -> None:
    """Unknown fields are ignored."""
    receipt = await plane.accepted(plane.boot().batch(1, event(mood="good"), colour="blue"))
    must(receipt.get("stored") == 1, "an event with an unknown field was not stored")


async def gzip_is_read(plane: Plane) -> None:
    """A body may be gzip."""
    body = gzip.compress(json.dumps(plane.boot().batch(1, event())).encode())
    must((await plane.accepted(body, content_encoding="gzip")).get("stored") == 1, "not stored")


async def what_is_no_batch_is_a_client_error(plane: Plane) -> None:
    """A body that will never be accepted is answered 400, 413, 415 or 422, never 5xx."""
    deep = b"[" * 20_000 + b"]" * 20_000
    bodies: list[Any] = [b"", b"{", b"\xff\xfe", b"null", deep, Boot().batch(0)]
    bodies += [Boot().batch(1) | {"slot": "a\0b"}, Boot().batch(1) | {"instance": "x"}]
    for body in bodies:
        reply = await plane.send(body)
        must(reply.status in (400, 413, 415, 422), f"{str(body)[:40]} answered {reply.status}")
        kind = reply.headers.get("content-type", "")
        must(kind.startswith("application/problem+json"), f"answered as {kind}")
    must((await plane.send(b"x", content_type="text/plain")).status == 415, "text is not 415")
    reply = await plane.send(Boot().batch(0))
    fields = [fault.get("field") for fault in reply.json().get("errors", [])]
    must("seq" in fields, "the problem does not name the field")


async def a_bomb_is_refused(plane: Plane) -> None:
    """At most 32 MiB are unpacked."""
    reply = await plane.send(gzip.compress(b" " * (40 * 2**20)), content_encoding="gzip")
    must(reply.status == 413, f"answered {reply.status}")


async def the_snapshot_has_a_tag(plane: Plane) -> None:
    """The configuration comes with an ETag; If-None-Match gives 304; another's name gives 403."""
    reply = await plane.call("GET", f"/gateways/{plane.name}/config")
    must(reply.status == 200, f"answered {reply.status} (is --name right?)")
    snapshot, tag = reply.json(), reply.headers.get("etag", "")
    must(bool(tag), "no ETag")
    for name in ("epoch", "revision", "generation", "hash", "spec", "server_time", "instances"):
        must(name in snapshot, f"the snapshot has no {name}")
    again = await plane.call("GET", f"/gateways/{plane.name}/config", if_none_match=tag)
    must(again.status == 304, f"If-None-Match answered {again.status}")
    other = await plane.call("GET", f"/gateways/not-{plane.name}/config")
    must(other.status == 403, f"another gateway's configuration answered {other.status}")


async def a_watch_begins_with_what_the_caller_lacks(plane: Plane) -> None:
    """A watch begins with a snapshot, or with a bookmark when the caller is current."""
    path = f"/gateways/{plane.name}/config"
    snapshot = (await plane.call("GET", path)).json()
    current = f"&generation={snapshot['generation']}&hash={snapshot['hash']}"
    for query, expected in (("", "snapshot"), (current, "bookmark")):
        first = await plane.first_frame(f"{path}?watch=1{query}")
        must(f"event: {expected}" in first, f"the first frame is {first[:60]!r}")


async def a_report_is_answered_with_the_generation(plane: Plane) -> None:
    """A status report is answered with generation, hash and epoch."""
    reply = await plane.goodbye(Boot())
    must(reply.status == 200, f"answered {reply.status}: {reply.body[:200]!r}")
    for name in ("generation", "hash", "epoch", "server_time", "instances"):
        must(name in reply.json(), f"the answer has no {name}")


CHECKS: tuple[Callable[[Plane], Awaitable[None]], ...] = (
    a_stranger_is_refused,
    a_token_in_the_url_is_refused,
    a_batch_gets_its_receipt,
    a_repeat_is_answered_from_the_first,
    a_rebatched_event_is_one,
    contiguous_waits_for_a_hole,
    a_bad_event_costs_its_neighbours_nothing,
    unknown_fields_are_ignored,
    gzip_is_read,
    what_is_no_batch_is_a_client_error,
    a_bomb_is_refused,
    the_snapshot_has_a_tag,
    a_watch_begins_with_what_the_caller_lacks,
    a_report_is_answered_with_the_generation,
)


async def check_control_plane(url: str, token: str, name: str) -> list[str]:
    """Run every check, say how each went, and return the names of those that failed.

    Raises ``aiohttp.ClientError`` when the control plane cannot be reached at all.
    """
    failed = []
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        plane = Plane(session, url, token, name)
        await plane.call("GET", f"/gateways/{name}/config")
        for check in CHECKS:
            sentence = (check.__doc__ or "").splitlines()[0]
            try:
                await check(plane)
            except (TimeoutError, Broken, aiohttp.ClientError, KeyError) as error:
                failed.append(check.__name__)
                print(f"FAIL  {sentence}\n      {type(error).__name__}: {error}")
            else:
                print(f"ok    {sentence}")
        with contextlib.suppress(TimeoutError, aiohttp.ClientError):
            await plane.leave()
    print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} hold.")
    return failed
