"""Fixtures that every test may use: the session's Postgres and databases on it.

Tests marked `django_db` get the server by themselves. Others ask for `postgres` (the running
server, `postgres.dsn(dbname)`), for `make_database` (new databases, dropped at the end) or for
`web` (a web process over empty tables, one for all tests of a runner).
"""

import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
from asgiref.sync import SyncToAsync
from django.conf import settings
from django.db import connection, connections
from django.db.backends.postgresql.operations import DatabaseOperations
from psycopg import sql

from tests.dashboard.server import WebProcess, collect_static
from tests.embedded import POSTGRES, TestPostgres

# No test is about speed, so an example may take as long as a busy machine needs. CI draws the same
# examples every time: what it says depends on the commit alone. A developer's run explores.
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "explore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest first: one that begins last is waited for by three idle runners.

    `--no-loadscope-reorder` lets runners side by side take files in this order.
    """
    rank: dict[Path, int] = {}
    for item in items:
        own = (
            0 if item.get_closest_marker("long") else 1 if item.get_closest_marker("browser") else 2
        )
        rank[item.path] = min(own, rank.get(item.path, own))
    items.sort(key=lambda item: rank[item.path])


@pytest.fixture(scope="session")
def postgres() -> TestPostgres:
    """The session's Postgres, running."""
    POSTGRES.start()
    return POSTGRES


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: TestPostgres) -> None:
    """Have the server running before pytest-django creates its test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, postgres: TestPostgres) -> Iterator[None]:
    """Empty tables in spite of the audit's guard; end what threads left open before the drop."""
    # Its imports need the settings, which stand by now.
    from tests.telemetry import TELEMETRY, filled

    flush = DatabaseOperations.execute_sql_flush

    def flush_all(self: DatabaseOperations, statements: list[str]) -> None:
        # Emptying only what a test filled: a TRUNCATE of every table took 0.9 s after each test,
        # a DELETE of a few rows takes a millisecond and waits for no reader.
        named = re.findall(r'"([a-z_0-9]+)"', " ".join(statements))
        tables = filled({*named, *TELEMETRY})
        # As a replica no trigger fires; the revision's one row is data that migrations made.
        seed = "INSERT INTO revision (id, value, epoch) VALUES (1, 0, gen_random_uuid())"
        emptied = [f'DELETE FROM "{table}"' for table in tables]
        flush(self, ["SET LOCAL session_replication_role = replica", *emptied, seed])

    DatabaseOperations.execute_sql_flush = flush_all
    yield
    DatabaseOperations.execute_sql_flush = flush
    # Coroutines reach the ORM in one thread that lives as long as the program, and so does its
    # connection: unclosed, it is a ResourceWarning at the very end.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    name = settings.DATABASES["default"]["NAME"]
    with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


@pytest.fixture
def make_database(postgres: TestPostgres) -> Iterator[Callable[..., str]]:
    """Create databases: `make_database()` or `make_database(template=...)` returns the URL."""
    made: list[str] = []

    def make(template: str = "template0") -> str:
        name = f"t_{uuid.uuid4().hex}"
        with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as admin:
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        made.append(name)
        return postgres.dsn(name)

    yield make
    with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as admin:
        for name in made:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def static_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the collected static files, collected once for runners side by side."""
    var, shared = tmp_path_factory.mktemp("var"), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "static.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "collected").exists():
            collect_static(shared)
            (shared / "collected").touch()
    (var / "static").symlink_to(shared / "static")
    return var


@pytest.fixture(scope="session")
def shared_web(
    django_db_setup: None, postgres: TestPostgres, static_files: Path
) -> Iterator[WebProcess]:
    """The session's web process."""
    web = WebProcess(postgres.dsn(settings.DATABASES["default"]["NAME"]), static_files)
    web.start()
    yield web
    web.kill()


@pytest.fixture
def web(transactional_db: None, shared_web: WebProcess) -> Iterator[WebProcess]:
    """The web process over empty tables; running again if the test before has killed it.

    Invariant: nobody is connected between two tests, so nothing of one is seen by the next.
    """
    if shared_web.process is None:
        shared_web.start()
    yield shared_web
    connection.close()
