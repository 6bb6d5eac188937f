"""Overrides that were made on a gateway's host: kept as they were reported, and audited.

Invariant: each is audited once when it is first heard of and once when its end is, in the
transaction of the report, whichever worker of the host is the first to say it. The control plane
changes nothing about them: they are the gateway's own.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from psycopg import AsyncConnection

from controlplane.models.pool import named_sql
from controlplane.wire.status import LocalOverride

_SQL = Path(__file__).parent / "sql"


async def keep(
    conn: AsyncConnection,
    gateway_id: int,
    slot: str,
    reported: list[LocalOverride],
    now: datetime,
) -> bool:
    """Store what is new in a report; True when something was. The last word on each counts."""
    if not reported:
        return False
    said = {override.uid: override for override in reported}.values()
    # Every field is named: what the wire leaves out as its default must not become NULL.
    items = [{f: getattr(o, f) for f in LocalOverride.__struct_fields__} for o in said]
    values = {
        "gateway": gateway_id,
        "host": slot.rpartition("/")[0] or slot,
        "items": msgspec.json.encode(items).decode(),
        "now": now,
    }
    cursor = await conn.execute(named_sql(_SQL / "put_local_overrides.sql"), values)
    changed = await cursor.fetchall()
    for uid, is_new, has_ended in changed:
        told = {"gateway": gateway_id, "uid": uid, "now": now}
        actions = [*(["force_local"] if is_new else []), *(["end_local"] if has_ended else [])]
        for action in actions:
            audit = named_sql(_SQL / "audit_local_override.sql")
            await conn.execute(audit, told | {"action": action})
    return bool(changed)
