"""One batch of a gateway: read it, store it with those that come beside it, say so.

Invariant: the answer is given after the commit and never before; a batch that is answered is stored
once, whatever dies at whatever moment. A batch is refused as a whole only if its head is unreadable
or Postgres is away; whatever one event is, it never becomes a batch that is sent for ever.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from controlplane.ingest.lanes import committer
from controlplane.ingest.prepare import Arrived
from controlplane.ingest.read import read_batch
from controlplane.wire.events import Receipt


async def accept(gateway_id: int, body: bytes, now: datetime) -> Receipt:
    """Store a batch (unpacked JSON) that arrived at ``now``; ``Problem`` when it cannot be."""
    batch = read_batch(body, now=now, retention=timedelta(days=settings.RAW_RETENTION_DAYS))
    answer = await committer().store(Arrived(gateway_id, batch, now))
    return Receipt(
        seq=batch.seq,
        epoch=answer.epoch,
        contiguous=answer.stored.contiguous,
        generation=answer.generation,
        server_time=now,
        stored=answer.stored.stored,
        duplicates=answer.stored.duplicates,
        unread=answer.stored.unread,
    )
