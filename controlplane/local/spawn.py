"""Start child processes that never outlive their parent, and judge whether a pid still lives.

Invariant: a child runs in its own session (a terminal's Ctrl-C reaches only the parent) and,
on Linux, is sent a signal by the kernel when its parent dies, even of SIGKILL. macOS has no such
signal: there the pid files of `children` let the next start end what was left over.

The kernel ties that signal to the *thread* that forked: spawn from a thread that lives as long
as the program does.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from .account import Account

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _dying_with_parent(death_signal: int) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def ask_the_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        # The parent may have died between fork and prctl; then no signal will ever come.
        if os.getppid() != parent:
            os._exit(1)

    return ask_the_kernel


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    output: IO[bytes] | int,
    cwd: Path | str = "/",
    account: Account | None = None,
    death_signal: int = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start `argv` as a direct child, its stdout and stderr going to `output`.

    `account` is the user to become (None keeps ours). Raises OSError if the program cannot start.
    """
    # preexec_fn runs after the change of user: the kernel clears the death signal on setuid.
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=str(cwd),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        preexec_fn=_dying_with_parent(death_signal),
    )


def command_line(pid: int) -> str | None:
    """The command line of a live process, or None if it is gone or a zombie."""
    if pid <= 0:
        return None
    proc = Path(f"/proc/{pid}")
    if Path("/proc/self/stat").exists():
        try:
            # The name in parentheses may itself hold spaces and parentheses.
            state = (proc / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            args = (proc / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if state in "ZX" else args.replace(b"\0", b" ").decode(errors="replace").strip()
    # Slim Linux images have no ps, but every macOS has.
    shown = subprocess.run(
        ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    ).stdout.strip()
    state, _, command = shown.partition(" ")
    return None if not state or state.startswith("Z") else command.strip()


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """Poll `condition` until it holds or `seconds` have passed; says whether it held."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True


def signal_quietly(pid: int, number: int, *, group: bool = False) -> None:
    """Send a signal to a process, or to its whole group; one that is gone already is no error."""
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # macOS answers EPERM for a group whose last member is a zombie.
        return
