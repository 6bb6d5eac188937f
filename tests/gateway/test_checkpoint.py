"""What was in force is in force again after a restart, or nothing is: never a part of it."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.checkpoint import Checkpoint
from tests.gateway import build
from tests.gateway.fake_clock import START


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint" / "0.json"
    Checkpoint(path, "demo").save(build.snapshot_bytes(3), START, 1.5)
    return path


def test_what_is_saved_is_loaded(saved: Path) -> None:
    found = Checkpoint(saved, "demo").load()
    assert found is not None
    assert (found.raw, found.saved_at, found.offset_s) == (build.snapshot_bytes(3), START, 1.5)
    assert saved.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in saved.parent.iterdir()] == ["0.json"]


def test_nothing_saved_is_nothing(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "0.json", "demo").load() is None


def test_anothers_is_not_used(saved: Path) -> None:
    assert Checkpoint(saved, "another").load() is None


@settings(max_examples=100, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_file_is_as_none(
    tmp_path_factory: pytest.TempPathFactory, where: float, flip: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("c") / "0.json"
    Checkpoint(path, "demo").save(build.snapshot_bytes(3), START, 0.0)
    blob = bytearray(path.read_bytes())
    at = int(where * len(blob))
    if cut:
        del blob[at:]
    else:
        blob[at] ^= flip
    path.write_bytes(blob)
    assert Checkpoint(path, "demo").load() is None


def test_a_save_cut_short_leaves_the_one_before(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        Checkpoint(saved, "demo").save(build.snapshot_bytes(4), START, 0.0)
    found = Checkpoint(saved, "demo").load()
    assert found is not None
    assert found.raw == build.snapshot_bytes(3)


def test_the_time_of_day_after_a_restart_is_the_control_planes(saved: Path) -> None:
    found = Checkpoint(saved, "demo").load()
    assert found is not None
    hour, ahead = timedelta(hours=1), timedelta(seconds=1.5)
    assert found.wall(START + hour) == START + hour + ahead
    # A clock that went back must not make an override live longer.
    assert found.wall(START - hour) == START + ahead
