"""Is the audit what was written? Its chain of hashes, from the first link to the last.

Invariant: the database's own function, with which each link was made, says what it should be; so a
changed, missing or slipped-in entry is a fault. Whoever may rewrite the whole database may rewrite
the chain too: only a head that was kept elsewhere shows that, and that the newest were cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from controlplane.models.pool import named_sql

_SQL = Path(__file__).parent / "sql" / "audit_chain.sql"
_UNLINKED = """
SELECT e.id FROM audit_entry e
WHERE NOT EXISTS (SELECT FROM audit_link l WHERE l.entry_id = e.id) ORDER BY e.id LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest link, written ``SEQ:HASH``. ``seq`` 0: nothing was audited yet."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


@dataclass(frozen=True, slots=True)
class Chain:
    """``faults``: what does not hold, in words, in order."""

    head: Head
    faults: tuple[str, ...]


def read(kept: Head | None = None) -> Chain:
    """Check every link; ``kept`` is a head that was written down earlier."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq, encode(hash, 'hex') FROM audit_link ORDER BY seq DESC LIMIT 1")
        head = Head(*(cursor.fetchone() or (0, "")))
        cursor.execute(named_sql(_SQL))
        faults = [f"link {seq} (entry {entry}): {why}" for seq, entry, why in cursor.fetchall()]
        cursor.execute(_UNLINKED)
        faults += [f"entry {row[0]}: it was written past the chain" for row in cursor.fetchall()]
        if kept is not None and kept.seq:
            cursor.execute("SELECT encode(hash, 'hex') FROM audit_link WHERE seq = %s", [kept.seq])
            found = cursor.fetchone()
            if found is None:
                faults.append(f"link {kept.seq} was there before, and is gone: the end was cut off")
            elif found[0] != kept.hash:
                faults.append(f"link {kept.seq} is not the one that was kept: all was rewritten")
    return Chain(head, tuple(faults))
