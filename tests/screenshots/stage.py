"""A web process of the product over a database of its own, filled scene by scene.

Invariant: the database, its server and the web process are made here and ended here. Instances of
a scene stay in contact for as long as ``in_contact`` is called before each look.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from tests import builders
from tests.dashboard.server import WebProcess, collect_static
from tests.embedded import POSTGRES

_EMPTY = """
DO $do$
BEGIN
    -- As a replica the audit's guard does not fire.
    SET LOCAL session_replication_role = replica;
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(quote_ident(relname), ', ') || ' RESTART IDENTITY CASCADE'
        FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
          AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
    );
    INSERT INTO revision (id, value, epoch) VALUES (1, 0, gen_random_uuid());
    -- No minute of a scene is derived yet.
    INSERT INTO rollup_watermark
    SELECT grain, now() - interval '3 hours' FROM unnest(ARRAY['minute', 'hour']) AS grain;
END $do$
"""


@contextmanager
def stage() -> Iterator[WebProcess]:
    """An empty database with a web process over it."""
    POSTGRES.start()
    try:
        name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        with tempfile.TemporaryDirectory(prefix="switchgear-screens-") as folder:
            collect_static(Path(folder))
            web = WebProcess(POSTGRES.dsn(name), Path(folder))
            web.start()
            try:
                yield web
            finally:
                web.kill()
                connection.close()
    finally:
        POSTGRES.stop()


def empty() -> None:
    """No row of any scene; one operator, so that somebody can look.

    The stage has no worker: its word is written here, as in a product that runs.
    """
    with connection.cursor() as cursor:
        cursor.execute(_EMPTY)
        cursor.execute(
            "INSERT INTO background_job (name, succeeded_at) VALUES ('telemetry.derive', now())"
        )
    builders.product_person("oncall")


def in_contact(*, but: str = "batch-iad") -> None:
    """Every instance was heard of just now, except the slots that begin with ``but``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE instance SET last_seen_at = now() WHERE slot NOT LIKE %s", [f"{but}%"]
        )
        cursor.execute("SELECT pg_notify('switchgear', 'observed')")
