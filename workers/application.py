"""The Celery application.

Invariant: a task is a hint to look at Postgres, never the carrier of what to do: it may run twice,
late or not at all, and the next run puts it right. No result is kept anywhere.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup(set_prefix=False)

# Django must be set up before what needs it is imported.
from celery import Celery  # noqa: E402
from django.conf import settings  # noqa: E402

from workers.schedule import SCHEDULE  # noqa: E402

app = Celery("switchgear", broker=settings.BROKER_URL or None, include=["workers.tasks"])
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_pool="threads",
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # A task of a worker that died is given to another one after this many seconds.
    broker_transport_options={"visibility_timeout": 120},
    timezone="UTC",
    enable_utc=True,
    beat_schedule=SCHEDULE,
)
