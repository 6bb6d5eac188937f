"""Two roles of Postgres: one owns the audit, the other runs the product and can only add to it.

Invariant: after ``divide`` the runtime's role owns every table but the audit's (it makes and drops
day partitions, so it must own their parents), and of the audit it may INSERT entries and SELECT.
Without an owner of its own the audit is guarded by triggers and its chain; ``weakness`` says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psycopg import Connection, errors, sql

from controlplane.models.pool import named_sql

_FOLDER = Path(__file__).parent / "sql"
WEAKNESS = _FOLDER / "audit_weakness.sql"
_TABLES = ("audit_entry", "audit_link")
_KEPT = (*_TABLES, "django_migrations")
_FUNCTIONS = (
    "switchgear_refuse_change()",
    "switchgear_audit_link()",
    "switchgear_audit_hash(bytea, audit_entry)",
)


class DivisionError(Exception):
    """The roles cannot be set up; the message says what an administrator is to run."""


def weakness(cursor: Any) -> str:
    """Why the connected role could change the audit, as words after "because"; '' if it cannot."""
    cursor.execute(named_sql(WEAKNESS))
    row = cursor.fetchone()
    return str(row[0]) if row else ""


def divide(owner: Connection, runtime: str, password: str) -> None:
    """Make the role ``runtime`` if it is missing and give it everything but the audit.

    ``owner`` is a connection of the role that ran the migrations, within a transaction. Safe to
    repeat. Raises ``DivisionError``.
    """
    (me,) = _one(owner, "SELECT current_user")
    if me == runtime:
        raise DivisionError(
            f"DATABASE_URL and DATABASE_OWNER_URL both name the role {me}: write two roles, or "
            "leave DATABASE_OWNER_URL out."
        )
    _role(owner, me, runtime, password)
    try:
        _grants(owner, me, runtime)
    except errors.InsufficientPrivilege as error:
        raise DivisionError(
            f"{me} may not hand over to {runtime}: {error.diag.message_primary}. Let it own the "
            f"database, and run as a superuser: GRANT {runtime} TO {me}"
        ) from error


def _role(owner: Connection, me: str, runtime: str, password: str) -> None:
    """The role with the password that its URL holds, sent as a verifier that no log can tell."""
    makes_roles, superuser = _one(
        owner,
        "SELECT rolcreaterole OR rolsuper, rolsuper FROM pg_roles WHERE rolname = current_user",
    )
    found = _one(owner, "SELECT rolsuper FROM pg_roles WHERE rolname = %s", runtime)
    name = sql.Identifier(runtime)
    if found is None and not makes_roles:
        raise DivisionError(
            f"There is no role {runtime}, which DATABASE_URL names, and {me} may not "
            f"make one. Run as a superuser: CREATE ROLE {runtime} LOGIN PASSWORD '…'"
        )
    if found is None:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    if password and makes_roles and (superuser or not (found and found[0])):
        secret = owner.pgconn.encrypt_password(password.encode(), runtime.encode())
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
        _if_permitted(owner, statement.format(name, sql.Literal(secret.decode())))


def _if_permitted(owner: Connection, statement: sql.Composed) -> None:
    """Somebody else's role keeps its password; log-in will say when the URL has another."""
    try:
        with owner.transaction():
            owner.execute(statement)
    except errors.InsufficientPrivilege:
        return


def _grants(owner: Connection, me: str, runtime: str) -> None:
    mine, theirs = sql.Identifier(me), sql.Identifier(runtime)
    (schema, database) = _one(owner, "SELECT current_schema(), current_database()")
    (member,) = _one(owner, "SELECT pg_has_role(%s, 'USAGE')", runtime)
    if not member:
        owner.execute(sql.SQL("GRANT {} TO {}").format(theirs, mine))
    may = sql.SQL("GRANT USAGE, CREATE ON SCHEMA {} TO {}")
    owner.execute(may.format(sql.Identifier(schema), theirs))
    may = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
    owner.execute(may.format(sql.Identifier(database), theirs))
    # From a time when one role did everything: the audit goes to the owner.
    for kind, guarded in [("TABLE", t) for t in _KEPT] + [("FUNCTION", f) for f in _FUNCTIONS]:
        if _owner_of(owner, kind, guarded) != me:
            statement = sql.SQL("ALTER {} {} OWNER TO {}")
            owner.execute(statement.format(sql.SQL(kind), sql.SQL(guarded), mine))
    named = {"kept": list(_KEPT), "runtime": runtime}
    for (table,) in owner.execute(named_sql(_FOLDER / "to_hand_over.sql"), named).fetchall():
        owner.execute(sql.SQL("ALTER TABLE {} OWNER TO {}").format(sql.Identifier(table), theirs))
    for table in _KEPT:
        of = sql.Identifier(table)
        owner.execute(sql.SQL("REVOKE ALL ON {} FROM PUBLIC, {}").format(of, theirs))
        owner.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(of, theirs))
    owner.execute(sql.SQL("GRANT INSERT ON audit_entry TO {}").format(theirs))


def _owner_of(owner: Connection, kind: str, guarded: str) -> str:
    found = {
        "TABLE": "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = %s::regclass",
        "FUNCTION": "SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE oid = %s::regprocedure",
    }[kind]
    return str(_one(owner, found, guarded)[0])


def _one(owner: Connection, statement: str, *values: Any) -> Any:
    return owner.execute(statement, values).fetchone()
