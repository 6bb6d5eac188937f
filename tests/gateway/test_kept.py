"""Acknowledged batches are kept for an hour or 64 MiB, and go out again if they are lacking."""

import json
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from gateway import kept
from gateway.adoption import adopt, forget_oldest
from gateway.outbox import Identity, Outbox
from gateway.spool import Spool
from tests.gateway.build import attempt
from tests.gateway.fake_clock import START, FakeClock


def spool(root: Path) -> Spool:
    return Spool(root, 0, Identity(uuid4(), "host/0", "demo"), FakeClock())


def filled(root: Path, batches: int, epoch: str = "e1") -> Spool:
    """A spool whose batches were all acknowledged."""
    made = spool(root)
    more(made, batches, epoch)
    return made


def more(held: Spool, batches: int, epoch: str) -> None:
    for _ in range(batches):
        held.append(attempt())
        held.seal()
    deliver(held.outbox, epoch)


def deliver(outbox: Outbox, epoch: str, at: timedelta = timedelta()) -> list[int]:
    """Acknowledge whatever waits; the numbers in the order of sending."""
    sent = []
    while (batch := outbox.head()) is not None:
        sent.append(batch.seq)
        outbox.acknowledge(batch, epoch, START + at)
    return sent


def files(root: Path, suffix: str = kept.SUFFIX) -> list[int]:
    return sorted(int(path.name[:12]) for path in root.glob(f"*/*/*{suffix}"))


def test_a_receipt_of_the_same_epoch_sends_nothing_again(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    assert files(tmp_path) == [1, 2, 3]
    assert held.outbox.told("e1", 1) == 0
    assert not held.outbox.ask("e1")


def test_another_epoch_gets_what_lies_behind_its_contiguous_seq(tmp_path: Path) -> None:
    held = filled(tmp_path, 5)
    assert held.outbox.told("e2", 2) == 3
    assert deliver(held.outbox, "e2") == [3, 4, 5]
    # All of it is of the new epoch now: nothing goes a third time.
    assert held.outbox.told("e2", 0) == 0
    assert files(tmp_path) == [1, 2, 3, 4, 5]


def test_what_goes_again_goes_before_what_was_never_sent(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    held.append(attempt())
    held.seal()
    held.outbox.told("e2", 1)
    assert deliver(held.outbox, "e2") == [2, 3, 4]


def test_an_epoch_that_is_heard_of_is_asked_once_with_the_newest(tmp_path: Path) -> None:
    held = filled(tmp_path, 4)
    assert held.outbox.ask("e2")
    assert not held.outbox.ask("e2")
    assert deliver(held.outbox, "e2") == [4]
    assert held.outbox.told("e2", 1) == 2
    assert deliver(held.outbox, "e2") == [2, 3]


def test_a_batch_names_only_receipts_of_the_epoch_that_it_names(tmp_path: Path) -> None:
    held = filled(tmp_path, 4)
    held.append(attempt())
    held.seal()
    batch = held.outbox.head()
    assert batch is not None

    def said(epoch: str, after: timedelta = timedelta(minutes=1)) -> int:
        return json.loads(held.outbox.body(batch, epoch, 1, START + after))["acknowledged"]

    assert said("e1") == 4
    # To the new epoch the old receipts say nothing: it must not be taken for older still.
    assert said("e2") == 0
    assert said("") == 0
    # A control plane keeps no row of who was silent for weeks: it must not be taken for a backup.
    assert said("e1", timedelta(minutes=61)) == 0


def test_they_are_kept_for_an_hour(tmp_path: Path) -> None:
    held = filled(tmp_path, 2)
    held.append(attempt())
    held.seal()
    deliver(held.outbox, "e1", timedelta(minutes=59))
    held.outbox.kept.expire(START + timedelta(minutes=59))
    assert files(tmp_path) == [1, 2, 3]
    held.outbox.kept.expire(START + timedelta(minutes=61))
    assert files(tmp_path) == [3]
    assert held.outbox.kept.highest("e1", START + timedelta(minutes=61)) == 3


def test_they_are_kept_up_to_a_size(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kept, "KEPT_BYTES", 3 * 4096)
    held = filled(tmp_path, 5)
    assert files(tmp_path) == [3, 4, 5]
    assert len(held.outbox.kept) == 3


def test_a_later_boot_takes_over_what_was_kept(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    held.close()
    (adopted,) = adopt(tmp_path, "demo", now=START + timedelta(minutes=5))
    assert adopted.outbox.kept.highest("e1", START + timedelta(minutes=5)) == 3
    assert deliver(adopted.outbox, "e1") == []
    adopted.finish()
    assert files(tmp_path) == [1, 2, 3], "it stays for the rest of its hour"
    (adopted,) = adopt(tmp_path, "demo", now=START + timedelta(minutes=5))
    assert adopted.outbox.ask("e1", always=True)
    assert deliver(adopted.outbox, "e2") == [3]
    assert adopted.outbox.told("e2", 0) == 2
    assert deliver(adopted.outbox, "e2") == [1, 2]
    adopted.finish()
    (adopted,) = adopt(tmp_path, "demo", now=START + timedelta(minutes=61))
    adopted.finish()
    assert not list(tmp_path.glob("*/*"))


def test_resending_that_was_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    held = filled(tmp_path, 4)
    held.outbox.told("e2", 1)
    held.close()
    (adopted,) = adopt(tmp_path, "demo", now=START)
    assert deliver(adopted.outbox, "e2") == [2, 3, 4]


def test_dead_boots_keep_no_more_than_one_would(tmp_path: Path) -> None:
    for _ in range(3):
        filled(tmp_path, 4).close()
    # Their receipts are of long ago by this clock.
    assert not forget_oldest(tmp_path, "demo", 2**30)
    assert files(tmp_path) == []


def test_a_file_that_is_gone_is_no_reason_to_stop(tmp_path: Path) -> None:
    held = filled(tmp_path, 3)
    next(tmp_path.glob(f"*/*/*2.*{kept.SUFFIX}")).unlink()
    assert held.outbox.told("e2", 0) == 2
    assert deliver(held.outbox, "e2") == [1, 3]
