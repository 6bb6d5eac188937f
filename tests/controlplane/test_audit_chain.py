"""The audit's chain: whatever is changed behind the guard's back is found."""

import re
import threading
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction
from django.test import Client

from controlplane.actions import annotations
from controlplane.actions.actor import SYSTEM
from controlplane.models import AuditEntry, AuditLink
from controlplane.reports.audit_chain import read
from tests import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def entries() -> list[AuditEntry]:
    texts = ["deploy", "it burns £3", "naïve \u2603"]
    for text in texts:
        annotations.annotate(actor=SYSTEM, text=text, now=builders.now())
    builders.audit_entry(before={"b": 1, "a": [1.50, None]}, after={"é": "\u202e"})
    return list(AuditEntry.objects.order_by("id"))


def behind_the_guard(sql: str, *values: Any) -> None:
    """What somebody with the database's own rights can do."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql, values)
        # LOCAL lasts for the whole transaction, which is the test's.
        cursor.execute("SET LOCAL session_replication_role = origin")


def verified(*arguments: str) -> str:
    out = StringIO()
    call_command("verify_audit", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_what_the_product_wrote_holds_and_gives_a_head_to_keep(entries: list[AuditEntry]) -> None:
    said = verified()
    head = re.search(r"(4:[0-9a-f]{64})", said)
    assert head is not None, said
    assert "4 entries" in said
    builders.audit_entry()
    assert "5 entries" in verified("--kept", head[1])
    assert [link.entry_id for link in AuditLink.objects.order_by("seq")][:4] == [
        entry.pk for entry in entries
    ]


def test_nothing_audited_is_fine() -> None:
    assert "0 entries" in verified()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE audit_entry SET reason = 'no' WHERE id = %s", "was changed"),
        ("UPDATE audit_entry SET actor = 'ann' WHERE id = %s", "was changed"),
        ("UPDATE audit_entry SET at = at + interval '1 microsecond' WHERE id = %s", "was changed"),
        ("UPDATE audit_entry SET after = '{}' WHERE id = %s", "was changed"),
        ("DELETE FROM audit_entry WHERE id = %s", "was taken out"),
        ("DELETE FROM audit_link WHERE entry_id = %s", "are missing"),
        ("UPDATE audit_link SET hash = sha256('x') WHERE entry_id = %s", "was changed"),
    ],
)
def test_what_is_changed_behind_the_guard_is_found(
    entries: list[AuditEntry], change: str, fault: str
) -> None:
    behind_the_guard(change, entries[1].pk)
    faults = read().faults
    assert any(fault in said for said in faults), faults
    with pytest.raises(CommandError, match="not as it was written"):
        verified()


def test_what_is_slipped_in_is_found(entries: list[AuditEntry]) -> None:
    behind_the_guard(
        "INSERT INTO audit_entry (at, actor, actor_kind, action, object_kind, object_name, reason,"
        " address, request_id) VALUES (now(), 'ann', 'person', 'force', 'Override', 'o', 'x', '',"
        " %s)",
        "",
    )
    assert [said.partition(": ")[2] for said in read().faults] == ["it was written past the chain"]


def test_a_cut_end_or_a_rewritten_chain_is_found_by_a_head_that_was_kept(
    entries: list[AuditEntry],
) -> None:
    kept = read().head
    last = entries[-1].pk
    behind_the_guard("DELETE FROM audit_link WHERE entry_id = %s", last)
    behind_the_guard("DELETE FROM audit_entry WHERE id = %s", last)
    assert read().faults == ()
    assert "cut off" in read(kept).faults[0]
    builders.audit_entry()
    assert "rewritten" in read(kept).faults[0]


@pytest.mark.parametrize("change", ["UPDATE audit_link SET seq = 9", "DELETE FROM audit_link"])
def test_the_chain_is_append_only_too(entries: list[AuditEntry], change: str) -> None:
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(change)


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_time_make_one_chain() -> None:
    def write() -> None:
        for _ in range(10):
            annotations.annotate(actor=SYSTEM, text="x", now=builders.now())
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = read()
    assert (chain.head.seq, chain.faults) == (40, ())


def test_a_head_that_is_none_is_said(client: Client) -> None:
    with pytest.raises(CommandError, match="SEQ:HASH"):
        verified("--kept", "no")
