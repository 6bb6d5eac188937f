"""The environment is whole or made again; the choice of a Python ends in a path or in advice."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from controlplane.local.errors import LaunchError
from controlplane.local.install import install

pytestmark = pytest.mark.long
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock without packages: everything but the download is real."""
    path = tmp_path / "none.lock"
    path.write_text("# nothing\n")
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The requirement of a package that pip finds in a folder: no test waits for an index."""
    info = "nothing-1.dist-info"
    with zipfile.ZipFile(tmp_path / "nothing-1-py3-none-any.whl", "w") as package:
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1\n")
        package.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        package.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())
    return "nothing==1"


def made_anew(heard: list[str]) -> bool:
    made = any("Making the virtual environment" in line for line in heard)
    heard.clear()
    return made


def test_environment_is_made_once_and_made_again_when_broken(
    tmp_path: Path, lock: Path, wheel: str, heard: list[str]
) -> None:
    venv = tmp_path / "a venv"
    # Cut off in the middle: what pip had half unpacked must not be trusted.
    (venv / "lib" / "half").mkdir(parents=True)
    (venv / "switchgear.installing").touch()
    install(venv, lock, heard.append)
    assert made_anew(heard)
    assert not (venv / "lib" / "half").exists()
    shown = subprocess.run(
        [venv / "bin" / "python", "-c", "import controlplane; print(controlplane.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == str(CHECKOUT / "controlplane" / "__init__.py")

    install(venv, lock, heard.append)
    assert heard == []

    # The Python that it was made with has been removed.
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to(tmp_path / "gone")
    install(venv, lock, heard.append)
    assert made_anew(heard)

    lock.write_text("# a new version of nothing\n")
    install(venv, lock, heard.append)
    assert heard
    assert not made_anew(heard)

    lock.write_text(f"{wheel}\n")
    with pytest.raises(LaunchError, match=r"(?s)Installing the packages failed.*--hash=sha256:"):
        install(venv, lock, heard.append)


def test_missing_lock_is_named(tmp_path: Path, heard: list[str]) -> None:
    with pytest.raises(LaunchError, match=r"none\.lock is missing"):
        install(tmp_path / "venv", tmp_path / "none.lock", heard.append)


def find_python(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", CHECKOUT / "controlplane" / "local" / "python.sh"],
        env={"PATH": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(folder: Path, name: str, exit_code: int) -> Path:
    path = folder / name
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit {exit_code}\n')
    path.chmod(0o755)
    return path


def test_newer_python_is_found_beside_an_old_one(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", 1)
    (tmp_path / "python3.12").symlink_to(os.path.realpath(sys.executable))
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_old_python_alone_is_refused_with_advice(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", 1)
    ended = find_python(tmp_path)
    assert ended.returncode == 1
    assert "needs Python 3.11 or newer" in ended.stderr
    assert "make up PYTHON=" in ended.stderr


def test_chosen_python_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    old = fake_python(tmp_path, "old", 1)
    ended = find_python(tmp_path, PYTHON=str(old))
    assert ended.returncode == 1
    assert "not a Python of version 3.11" in ended.stderr
