"""What a group adds to the rollup is counted while Postgres stores its rows."""

from typing import Any

import pytest
from psycopg import AsyncConnection

from controlplane.ingest import append, store
from controlplane.ingest.early import Early
from tests.controlplane.ingest.batches import attempt, batch
from tests.controlplane.ingest.conftest import Sender


async def test_the_rollup_is_counted_before_postgres_has_answered_the_copy(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    additions, copy = store.rollup.additions, append._copy

    def counted(new: Any) -> Any:
        seen.append("counted")
        return additions(new)

    async def copied(conn: AsyncConnection, *given: Any) -> None:
        await copy(conn, *given)
        seen.append("copied")

    await sender.send(batch(attempt(), seq=1))  # makes the day's partition
    monkeypatch.setattr(store.rollup, "additions", counted)
    monkeypatch.setattr(append, "_copy", copied)
    receipt = await sender.send(batch(attempt(), attempt(), seq=2))
    assert receipt["stored"] == 2
    assert seen == ["counted", "copied"]
    assert await sender.rows("rollup_minute", "sum(attempts)") == [(3,)]


async def test_only_what_is_new_is_counted_when_a_copy_will_not_do(sender: Sender) -> None:
    first, second = attempt(), attempt()
    await sender.send(batch(first, seq=1))
    receipt = await sender.send(batch(first, second, seq=2))
    assert (receipt["stored"], receipt["duplicates"]) == (1, 1)
    assert await sender.rows("rollup_minute", "sum(attempts)") == [(2,)]


def test_it_is_done_once_and_its_error_meets_who_asks() -> None:
    done: list[int] = []

    def work() -> int:
        done.append(1)
        return 7

    early = Early(work)
    early.begin()
    assert (early.value(), early.value(), done) == (7, 7, [1])

    def fail() -> int:
        raise ValueError("not a number")

    failing = Early(fail)
    failing.begin()
    with pytest.raises(ValueError, match="not a number"):
        failing.value()
