"""`python -m controlplane.local.install LOCK`: the virtual environment, made and kept as locked.

Invariant: a stamp in the environment, written last, says which lock it holds; a marker, removed
last, says that an installation was cut off. So an environment is used only if it is whole, and a
broken or half-made one is built again. Every package is checked against the hashes in the lock.
Needs nothing but Python 3.11 with its `venv` module.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from .console import Console
from .errors import LaunchError, explain, reads_as_full_disk
from .options import CHECKOUT, read_options
from .up import say_where

_MARKER = "switchgear.installing"
_LOCK = "switchgear.lock"
_DISK_NEEDED = 700 << 20
_TELL_EVERY = 2.0
_REPORT = "import sys, pip; print('%d.%d' % sys.version_info[:2])"


def _stamp(venv: Path, lock: Path) -> Path:
    return venv / f"switchgear.{lock.stem}.stamp"


def _wanted(venv: Path, lock: Path) -> str:
    """What the stamp says when this lock is installed here: also the path, which scripts hold."""
    held = hashlib.sha256(lock.read_bytes())
    held.update((CHECKOUT / "pyproject.toml").read_bytes())
    held.update(f"{venv}\n{CHECKOUT}\n".encode())
    return held.hexdigest()


def _version_in(venv: Path) -> str | None:
    """The version of the environment's Python, None if it (or its pip) does not work."""
    try:
        shown = subprocess.run(
            [venv / "bin" / "python", "-c", _REPORT], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return shown.stdout.strip() if shown.returncode == 0 else None


def _works(venv: Path) -> bool:
    version = _version_in(venv)
    return version is not None and tuple(map(int, version.split("."))) >= (3, 11)


@contextlib.contextmanager
def _alone(venv: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Let only one installation at a time work on this environment."""
    venv.mkdir(parents=True, exist_ok=True)
    with (venv / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another installation into {venv}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_venv(venv: Path, say: Callable[[str], None]) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise LaunchError(
            f"{sys.executable} has no working venv module. Install it (Debian, Ubuntu: apt-get "
            f"install python{sys.version_info[0]}.{sys.version_info[1]}-venv), or name another "
            "Python: make up PYTHON=/path/to/python3.12"
        )
    say(f"Making the virtual environment {venv} (Python {sys.version.split()[0]})")
    for path in venv.iterdir():
        if path.name == _LOCK:
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    made = subprocess.run(
        [sys.executable, "-m", "venv", venv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode != 0 or not _works(venv):
        raise _failure("Making the virtual environment", made.stdout)


def _failure(doing: str, output: str) -> LaunchError:
    if reads_as_full_disk(output):
        return LaunchError(
            f"The disk is full ({doing.lower()}). Free about 700 MB and start again."
        )
    end = "\n".join(output.strip().splitlines()[-12:])
    return LaunchError(
        f"{doing} failed; starting again goes on from a clean state. The package index must be "
        f"reachable the first time. pip said:\n{end}"
    )


def _install(venv: Path, lock: Path, say: Callable[[str], None]) -> None:
    total = len(re.findall(r"^[A-Za-z0-9][^\n]*==", lock.read_text(encoding="utf-8"), re.MULTILINE))
    say(f"Installing the {total} packages of {lock.name} (half a minute to a few minutes)")
    command: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "install", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--require-hashes"]
    with subprocess.Popen(
        [*command, "-r", lock],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        output = _follow(pip.stdout, total, say)
    if pip.returncode != 0:
        raise _failure("Installing the packages", output)


def _follow(lines: Iterator[str], total: int, say: Callable[[str], None]) -> str:
    """Turn pip's lines into a few of ours; returns all that it said."""
    heard: list[str] = []
    count, told = 0, time.monotonic()
    for line in lines:
        heard.append(line)
        if line.startswith("Installing collected packages"):
            say("Unpacking them")
        elif match := re.match(r"(?:Collecting|Requirement already satisfied:) ([^=<>;\s]+)", line):
            count += 1
            if time.monotonic() - told > _TELL_EVERY:
                told = time.monotonic()
                say(f"  {count} of {total}: {match[1]}")
    return "".join(heard)


def _add_ourselves(venv: Path) -> None:
    """Make the checkout importable, and its commands callable, from the environment.

    Instead of `pip install -e`: that would fetch a build tool, which no lock covers.
    """
    found = subprocess.run(
        [venv / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    Path(found.stdout.strip(), "switchgear.pth").write_text(f"{CHECKOUT}\n", encoding="utf-8")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, target in project.get("scripts", {}).items():
        module, _, function = target.partition(":")
        script = venv / "bin" / name
        script.write_text(
            # A shebang line is cut at a space or at 127 bytes; the shell's quoting is not.
            f"#!/bin/sh\n'''exec' \"{venv}/bin/python\" \"$0\" \"$@\"\n' '''\n"
            f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n",
            encoding="utf-8",
        )
        script.chmod(0o755)


def install(
    venv: Path,
    lock: Path,
    say: Callable[[str], None],
    first: Callable[[], None] = lambda: None,
) -> None:
    """Have `venv` hold exactly the versions of `lock`. Raises LaunchError with what to do.

    `first` is called before anything is said, if anything is to be done.
    """
    try:
        stamp, wanted = _stamp(venv, lock), _wanted(venv, lock)
        if _is_whole(venv, stamp, wanted):
            return
        first()
        with _alone(venv, say):
            if _is_whole(venv, stamp, wanted):
                return
            free = shutil.disk_usage(venv).free
            if free < _DISK_NEEDED and not stamp.exists():
                raise LaunchError(f"Only {free >> 20} MB of disk are free; 700 MB are needed.")
            marker = venv / _MARKER
            if marker.exists() or not _works(venv):
                _make_venv(venv, say)
            marker.touch()
            _install(venv, lock, say)
            _add_ourselves(venv)
            stamp.write_text(wanted, encoding="ascii")
            marker.unlink()
    except FileNotFoundError as error:
        raise LaunchError(f"{error.filename} is missing: is this a whole checkout?") from error
    except OSError as error:
        raise explain(error, f"installing into {venv}") from error


def _is_whole(venv: Path, stamp: Path, wanted: str) -> bool:
    try:
        held = stamp.read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return held == wanted and not (venv / _MARKER).exists() and _works(venv)


def main() -> int:
    """Install one lock file; 0 when the environment is whole, 1 with a line on what to do."""
    parser = argparse.ArgumentParser(description="Make the virtual environment as locked.")
    parser.add_argument("lock", help="a lock file in the checkout")
    parser.add_argument("--up", action="store_true", help="`make up` follows: say where data is")
    parser.add_argument("--venv", default=os.environ.get("VENV") or CHECKOUT / ".venv")
    options = parser.parse_args()
    console = Console()
    try:
        place = read_options()
        install(
            Path(options.venv).absolute(),
            CHECKOUT / options.lock,
            console.say,
            lambda: say_where(place, console.say) if options.up else None,
        )
    except LaunchError as error:
        console.say(f"Cannot install. {error}")
        return 1
    except KeyboardInterrupt:
        console.say("Interrupted; the next start installs from a clean state.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
