"""A boot that was silent for longer than its row is kept, and speaks again."""

import json
import uuid
from datetime import UTC, datetime, timedelta

from asgiref.sync import sync_to_async

from controlplane.models import Instance
from tests.asgi import call
from tests.controlplane.test_watch import make_fleet
from workers import tasks


def now() -> datetime:
    return datetime.now(UTC)


def _silent() -> None:
    Instance.objects.update(last_seen_at=now() - timedelta(days=60))


async def test_a_boot_that_speaks_again_after_it_was_deleted_is_a_new_instance(
    hot_pool: None,
) -> None:
    """A process of ours that remembers the old row must not answer 500 from then on."""
    token = await sync_to_async(make_fleet)()
    boot, headers = uuid.uuid4(), {"authorization": f"Bearer {token}"}
    at = now().isoformat()

    async def report(seq: int) -> int:
        body = {"slot": "host-a/0", "seq": seq, "sent_at": at, "started_at": at, "version": "1"}
        return (
            await call(
                "PATCH",
                f"/api/v1/gateways/eu-1/instances/{boot}/status",
                body=json.dumps(body).encode(),
                headers=headers,
            )
        ).status

    assert await report(1) == 200
    await sync_to_async(_silent)()
    await sync_to_async(tasks.partitions)()
    assert (await sync_to_async(tasks.retention)())["instance"] == 1
    assert await report(2) == 200
    found = await sync_to_async(lambda: Instance.objects.get().last_seen_at)()
    assert found > now() - timedelta(minutes=1)
