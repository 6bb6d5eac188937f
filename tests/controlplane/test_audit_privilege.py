"""The runtime's role may add to the audit and do nothing else to it; every action still writes.

In one transaction of the test database: the roles are made, divided, taken on, and rolled back.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.checks import run_checks
from django.db import DatabaseError, connection, transaction

from controlplane.actions import annotations, overrides, people
from controlplane.actions.actor import SYSTEM
from controlplane.models import AuditEntry, AuditLink
from controlplane.models.privileges import DivisionError, divide, weakness
from controlplane.reports.audit_chain import read
from tests import builders

CHECKOUT = Path(__file__).resolve().parents[2]
RUNTIME = "audit_test_runtime"


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture
def runtime(db: None) -> Iterator[None]:
    """Be the runtime's role, in the test's own transaction."""
    connection.ensure_connection()
    divide(connection.connection, RUNTIME, "its password")
    run(f"SET LOCAL ROLE {RUNTIME}")
    yield
    run("RESET ROLE")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET reason = 'another'",
        "UPDATE audit_link SET hash = ''",
        "DELETE FROM audit_entry",
        "DELETE FROM audit_link",
        "TRUNCATE audit_entry",
        "TRUNCATE audit_link CASCADE",
        "ALTER TABLE audit_entry DISABLE TRIGGER ALL",
        "ALTER TABLE audit_entry DISABLE TRIGGER audit_entry_append_only",
        "ALTER TABLE audit_link DISABLE TRIGGER audit_link_append_only",
        "SET session_replication_role = replica",
        "DROP TRIGGER audit_entry_linked ON audit_entry",
        "CREATE TRIGGER mine BEFORE INSERT ON audit_entry"
        " FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE mine AS ON INSERT TO audit_entry DO INSTEAD NOTHING",
        "DROP TABLE audit_entry",
        "DROP TABLE audit_link",
        "ALTER TABLE audit_entry RENAME TO elsewhere",
        "ALTER TABLE audit_entry OWNER TO CURRENT_USER",
        "ALTER TABLE audit_entry DROP COLUMN reason",
        "INSERT INTO audit_link (seq, entry_id, hash) VALUES (1000, 1000, '')",
        "DROP FUNCTION switchgear_refuse_change() CASCADE",
        "CREATE OR REPLACE FUNCTION switchgear_refuse_change() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$",
        "CREATE OR REPLACE FUNCTION switchgear_audit_link() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NULL; END $$",
        "DROP SCHEMA public CASCADE",
        # Of a GRANT alone Postgres only warns that nothing was granted.
        "GRANT UPDATE ON audit_entry TO CURRENT_USER; UPDATE audit_entry SET reason = 'another'",
        "DELETE FROM django_migrations",
        "ALTER ROLE CURRENT_USER SUPERUSER",
    ],
)
def test_the_runtime_is_refused(runtime: None, statement: str) -> None:
    builders.audit_entry()
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        run(statement)
    cause = refused.value.__cause__
    assert isinstance(cause, psycopg.errors.InsufficientPrivilege), cause
    # Postgres's own words, not the trigger's.
    assert "append-only" not in str(cause)
    assert read().faults == ()


def test_every_write_of_the_product_is_audited_and_linked(runtime: None) -> None:
    now = builders.now()
    annotations.annotate(actor=SYSTEM, text="deploy", now=now)
    people.create(actor=SYSTEM, name="ann", password="long enough it is", role="operator", now=now)
    made = overrides.force(
        actor=SYSTEM, mode="ForceOpen", reason="529s", now=now, expires_in=timedelta(hours=1)
    )
    overrides.release(actor=SYSTEM, name=made.name, now=now)
    written = list(AuditEntry.objects.order_by("id").values_list("action", "object_kind"))
    assert len(written) == AuditLink.objects.count() == 4
    assert written[2:] == [("force", "Override"), ("release", "Override")]
    assert read().faults == ()


def test_a_function_put_in_the_way_is_not_found_by_the_link(runtime: None) -> None:
    run(
        "CREATE FUNCTION jsonb_build_array(bigint, bigint, varchar, varchar, varchar, varchar,"
        " varchar, varchar, jsonb, jsonb, varchar, varchar, bigint) RETURNS jsonb LANGUAGE sql"
        " AS $$ SELECT '[]'::jsonb $$"
    )
    builders.audit_entry()
    run("SET LOCAL search_path = pg_catalog, public")
    assert read().faults == ()


def test_days_are_made_and_dropped_by_the_runtime(runtime: None) -> None:
    run("SELECT switchgear_ensure_days('2031-01-01', '2031-01-01')")
    run("ALTER TABLE attempt DETACH PARTITION attempt_20310101")
    run("DROP TABLE attempt_20310101")


def test_nothing_refers_to_the_audit_so_no_row_lock_needs_update(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'f' AND ("
            "conrelid IN ('audit_entry'::regclass, 'audit_link'::regclass) OR"
            " confrelid IN ('audit_entry'::regclass, 'audit_link'::regclass))"
        )
        assert cursor.fetchall() == []


def test_it_is_said_when_only_triggers_guard_the_audit(runtime: None) -> None:
    with connection.cursor() as cursor:
        assert weakness(cursor) == ""
    run("RESET ROLE")
    with connection.cursor() as cursor:
        assert weakness(cursor) == "it is a superuser"
    found = [w for w in run_checks(databases=["default"]) if w.id == "switchgear.W001"]
    assert "it is a superuser" in found[0].msg
    assert run_checks(databases=[]) == []
    run(f"GRANT UPDATE (reason) ON audit_entry TO {RUNTIME}")
    run(f"SET LOCAL ROLE {RUNTIME}")
    with connection.cursor() as cursor:
        assert weakness(cursor) == "it may update columns of audit_entry"
    run("RESET ROLE")
    run(f"ALTER TABLE audit_link OWNER TO {RUNTIME}")
    run(f"SET LOCAL ROLE {RUNTIME}")
    with connection.cursor() as cursor:
        assert weakness(cursor) == "it owns audit_link"


def test_one_role_for_both_is_refused(db: None) -> None:
    connection.ensure_connection()
    with pytest.raises(DivisionError, match="both name the role"):
        divide(connection.connection, str(connection.settings_dict["USER"]), "x")


def test_a_role_that_may_make_none_says_what_to_run(runtime: None) -> None:
    with pytest.raises(DivisionError, match="CREATE ROLE another_one LOGIN"):
        divide(connection.connection, "another_one", "x")


@pytest.mark.e2e
def test_a_database_of_one_role_gets_an_owner_that_is_no_superuser(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    """As a hosted Postgres would have it, by the real command and with real log-ins."""
    url = urlsplit(make_database())
    host, name = f"{url.hostname}:{url.port}", url.path[1:]
    roles = [f"{name}_app", f"{name}_owner"]
    app, owner = (f"postgresql://{role}:secret@{host}/{name}" for role in roles)

    def manage(*arguments: str, **variables: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "manage.py", *arguments],
            cwd=CHECKOUT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
            | {"SWITCHGEAR_VAR": str(tmp_path), "DATABASE_URL": app, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    with psycopg.connect(url.geturl(), autocommit=True) as admin:
        for role, more in zip(roles, ("", "CREATEROLE"), strict=True):
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret' {more}")  # type: ignore[arg-type]
        try:
            admin.execute(f"ALTER DATABASE {name} OWNER TO {roles[0]}")  # type: ignore[arg-type]
            manage("migrate", "-v", "0")
            assert "it owns audit_entry" in manage("check", "--database", "default")
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"),
                psycopg.connect(app) as alone,
            ):
                alone.execute("DELETE FROM audit_entry")
            admin.execute(f"ALTER DATABASE {name} OWNER TO {roles[1]}")  # type: ignore[arg-type]
            admin.execute(f"GRANT {roles[0]} TO {roles[1]}")  # type: ignore[arg-type]
            for _ in range(2):
                manage("migrate", "-v", "0", DATABASE_OWNER_URL=owner)
            assert "W001" not in manage("check", "--database", "default")
            with psycopg.connect(app) as divided:
                assert weakness(divided.cursor()) == ""
        finally:
            admin.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")  # type: ignore[arg-type]
            for role in roles:
                admin.execute(f"DROP OWNED BY {role} CASCADE")  # type: ignore[arg-type]
                admin.execute(f"DROP ROLE {role}")  # type: ignore[arg-type]
