"""The sync verdict: one table, and never a green that is not known."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.sync import Desired, Reported, Sync, is_counted, is_live, judge

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
DESIRED = Desired("e1", 12, "h12", NOW - timedelta(seconds=1))


def reported(silent: float = 1, **more: object) -> Reported:
    fields: dict[str, object] = {
        "heard_at": NOW - timedelta(seconds=silent),
        "epoch": "e1",
        "received_generation": 12,
        "applied_generation": 12,
        "applied_hash": "h12",
    }
    return Reported(**(fields | more))  # type: ignore[arg-type]


def pending(seconds: float) -> Desired:
    return Desired("e1", 12, "h12", NOW - timedelta(seconds=seconds))


BEHIND = {"received_generation": 11, "applied_generation": 11, "applied_hash": "h11"}


@pytest.mark.parametrize(
    ("desired", "report", "sync", "reason", "late"),
    [
        (DESIRED, reported(), "InSync", "Enforced", False),
        (DESIRED, reported(checkpointed_generation=12), "InSync", "Enforced", False),
        (DESIRED, reported(checkpointed_generation=11), "InSync", "NotOnDisk", True),
        (
            DESIRED,
            reported(checkpointed_generation=11, rejected=1),
            "Rejected",
            "ItemRejected",
            True,
        ),
        (DESIRED, reported(15), "InSync", "Enforced", False),
        (DESIRED, reported(**BEHIND, refused_generation=12), "Rejected", "SnapshotRefused", True),
        (DESIRED, reported(**BEHIND, refused_generation=10), "Applying", "NotDelivered", False),
        (DESIRED, reported(15.1), "Unknown", "NoRecentContact", True),
        (DESIRED, reported(30), "Unknown", "NoRecentContact", True),
        (DESIRED, reported(30.1), "Unreachable", "NoContact", True),
        (DESIRED, reported(30.1, has_reported=False), "Unreachable", "NoContact", True),
        (DESIRED, reported(has_reported=False), "Unknown", "NeverReported", False),
        (DESIRED, reported(rejected=1), "Rejected", "ItemRejected", True),
        (DESIRED, reported(unsupported=1), "Unsupported", "ItemUnsupported", True),
        (DESIRED, reported(rejected=1, unsupported=1), "Rejected", "ItemRejected", True),
        (pending(0.1), reported(**BEHIND), "Applying", "NotDelivered", False),
        (pending(2.1), reported(**BEHIND), "Applying", "NotDelivered", True),
        (pending(10.1), reported(**BEHIND), "Stale", "NotDelivered", True),
        (
            pending(10.1),
            reported(**(BEHIND | {"received_generation": 12})),
            "Stale",
            "Received",
            True,
        ),
        # A rejection of the generation before says nothing of this one.
        (pending(1), reported(**BEHIND, rejected=1), "Applying", "NotDelivered", False),
        (pending(11), reported(applied_hash="other"), "Stale", "OtherContent", True),
        (pending(11), reported(epoch="e0"), "Stale", "OtherEpoch", True),
        (pending(11), reported(epoch="e0", applied_generation=99), "Stale", "OtherEpoch", True),
        (DESIRED, reported(applied_generation=13), "Stale", "AheadOfControlPlane", True),
    ],
)
def test_the_verdict(
    desired: Desired, report: Reported, sync: str, reason: str, late: bool
) -> None:
    assert judge(desired, report, NOW) == (Sync(sync), reason, late)


@given(
    st.integers(0, 100_000),
    st.sampled_from(["e0", "e1"]),
    st.integers(10, 14),
    st.sampled_from(["h11", "h12"]),
    st.integers(0, 1),
    st.booleans(),
)
def test_in_sync_is_never_said_of_anything_else(
    silent_ms: int, epoch: str, generation: int, content: str, rejected: int, heard: bool
) -> None:
    report = reported(
        silent_ms / 1000,
        epoch=epoch,
        applied_generation=generation,
        applied_hash=content,
        rejected=rejected,
        has_reported=heard,
    )
    green = judge(DESIRED, report, NOW).sync is Sync.IN_SYNC
    assert green is (
        silent_ms <= 15_000
        and heard
        and not rejected
        and (epoch, generation, content) == ("e1", 12, "h12")
    )


def test_a_silent_instance_stops_being_live_and_later_being_counted() -> None:
    assert is_live(NOW - timedelta(seconds=30), NOW)
    assert not is_live(NOW - timedelta(seconds=31), NOW)
    assert is_counted(NOW - timedelta(minutes=60), NOW)
    assert not is_counted(NOW - timedelta(minutes=61), NOW)
