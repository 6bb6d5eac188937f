"""Where Postgres lives when its user cannot reach the var folder, and what is said about it."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from controlplane.local import postgres_home
from controlplane.local.account import Account, can_enter
from controlplane.local.errors import LaunchError
from controlplane.local.postgres_home import find_home, notice

# Some user that is not the one who runs the tests; nothing here becomes it.
STRANGER = Account("stranger", 54_321, 54_321)


@pytest.fixture
def elsewhere(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = Path(tempfile.mkdtemp(dir=open_folder))
    path.chmod(0o711)
    monkeypatch.setattr(postgres_home, "ELSEWHERE", path)
    monkeypatch.setattr(postgres_home, "service_account", lambda: STRANGER)
    return path


@pytest.fixture
def closed(elsewhere: Path) -> Path:
    """A var folder below one that only we may enter."""
    home = elsewhere.parent / f"{elsewhere.name}-home"
    var = home / "checkout" / "var"
    var.mkdir(parents=True)
    home.chmod(0o700)
    return var


def test_reachable_folder_holds_the_data_itself(elsewhere: Path) -> None:
    wanted = elsewhere / "var" / "postgres"
    assert notice(wanted) is None
    assert find_home(wanted, STRANGER).data == wanted
    assert not wanted.is_symlink()


def test_unreachable_folder_gets_a_link_and_keeps_its_mode(elsewhere: Path, closed: Path) -> None:
    wanted = closed / "postgres"
    announced = notice(wanted)
    place = find_home(wanted, STRANGER).data
    assert place.parent.parent == elsewhere
    assert wanted.readlink() == place
    assert announced == f"Postgres data is in {place}: the user stranger cannot enter {closed}"
    assert not can_enter(STRANGER, closed)
    assert closed.parent.parent.stat().st_mode & 0o777 == 0o700
    assert find_home(wanted, STRANGER).data == place
    assert notice(wanted) == announced


def test_two_checkouts_do_not_share_a_place(elsewhere: Path, closed: Path) -> None:
    other = closed.parent / "other"
    other.mkdir()
    first = find_home(closed / "postgres", STRANGER).data
    assert find_home(other / "postgres", STRANGER).data != first


def test_moved_checkout_keeps_its_data_and_a_copied_one_does_not_share_it(
    elsewhere: Path, closed: Path
) -> None:
    place = find_home(closed / "postgres", STRANGER).data
    copy = closed.parent / "copy"
    shutil.copytree(closed, copy, symlinks=True)
    assert find_home(copy / "postgres", STRANGER).data != place
    assert find_home(closed / "postgres", STRANGER).data == place
    moved = closed.rename(closed.parent / "moved")
    assert find_home(moved / "postgres", STRANGER).data == place


def test_link_to_nowhere_is_made_anew(elsewhere: Path, closed: Path) -> None:
    wanted = closed / "postgres"
    wanted.symlink_to(elsewhere / "removed" / "postgres")
    place = find_home(wanted, STRANGER).data
    assert wanted.readlink() == place
    assert place.parent.is_dir()


def test_cluster_out_of_reach_is_not_forgotten(elsewhere: Path, closed: Path) -> None:
    (closed / "postgres").mkdir()
    with pytest.raises(LaunchError, match=r"cannot reach\. Move it to"):
        find_home(closed / "postgres", STRANGER)


def test_programs_out_of_reach_are_copied_and_run(
    elsewhere: Path, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install, _ = postgres_home._installed()

    def can_enter_all_but_the_wheel(account: Account, folder: Path) -> bool:
        return install not in (folder, *folder.parents) and can_enter(account, folder)

    monkeypatch.setattr(postgres_home, "can_enter", can_enter_all_but_the_wheel)
    home = find_home(closed / "postgres", STRANGER)
    assert elsewhere in home.programs.parents
    for program in ("postgres", "initdb", "psql"):
        shown = subprocess.run(
            [home.programs / program, "--version"], capture_output=True, text=True, check=True
        )
        assert home.version in shown.stdout
        assert (home.programs / program).stat().st_mode & 0o005 == 0o005
