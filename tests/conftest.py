"""Fixtures that every test may use: the session's Postgres and databases on it.

Tests marked `django_db` get the server by themselves. Others ask for `postgres` (the running
server, `postgres.dsn(dbname)`) or `make_database` (new databases, dropped at the end).
"""

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from tests.embedded import POSTGRES, TestPostgres


@pytest.fixture(scope="session")
def postgres() -> TestPostgres:
    """The session's Postgres, running."""
    POSTGRES.start()
    return POSTGRES


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: TestPostgres) -> None:
    """Have the server running before pytest-django creates its test database."""


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
