"""``PATCH /api/v1/gateways/{name}/instances/{boot id}/status`` (docs/wire.md 3).

Invariant: a body that cannot be read is a 4xx that names the field; times that no clock shows
are refused, because Postgres would hold some of them and Python could not read them back.
"""

from __future__ import annotations

import re
from uuid import UUID

import msgspec
import psycopg

from controlplane.api.hot.auth import authenticate
from controlplane.api.hot.http import Receive, Scope, Send, answer_json, read_body
from controlplane.api.hot.times import times_of
from controlplane.errors import InvalidInput
from controlplane.watch.status import accept_report
from controlplane.wire.status import InstanceStatus

BODY_LIMIT = 4 * 1024 * 1024
_read = msgspec.json.Decoder(InstanceStatus).decode
_wrong_time = times_of(InstanceStatus)


async def status(scope: Scope, receive: Receive, send: Send) -> None:
    """Store one report; answer the desired generation."""
    caller = await authenticate(scope)
    caller.must_be(scope["path_params"]["name"])
    boot_id = _boot_id(scope["path_params"]["boot"])
    report = decode(await read_body(scope, receive, BODY_LIMIT))
    try:
        receipt = await accept_report(caller.gateway_id, caller.gateway, boot_id, report)
    except psycopg.DataError as error:
        # What the types let through and a column does not hold: a number beyond 64 bits.
        raise _invalid(f"a value cannot be stored: {error.diag.message_primary}") from error
    await answer_json(send, receipt)


def decode(body: bytes) -> InstanceStatus:
    """The report in a body. Raises ``InvalidInput`` naming the field."""
    try:
        report = _read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(str(error)) from error
    if (path := _wrong_time(report)) is not None:
        raise _invalid(f"expected a time from 2000 to 2200 - at `${path}`")
    return report


def _boot_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        fault = {"field": "boot id", "message": "write a UUID"}
        raise InvalidInput(f"boot id: {text[:80]!r} is not a UUID", errors=[fault]) from error


def _invalid(message: str) -> InvalidInput:
    """msgspec ends a message with the path: ``… - at `$.circuits[0].state```."""
    found = re.search(r" - at `\$\.?(.*)`\Z", message)
    field = found[1] if found else "body"
    said = message[: found.start()] if found else message
    return InvalidInput(
        f"{field}: {said}", errors=[{"field": field, "message": said}], code="invalid_status"
    )
