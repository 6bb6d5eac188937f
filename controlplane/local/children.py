"""The supervisor: starts children, waits until they serve, restarts what dies, stops everything.

Invariant: every child is ours to reap and is stopped in the reverse order of its start: SIGTERM
(or its own stop signal), then SIGKILL to its whole group after its grace. A child that dies by
itself is started again after a pause that doubles. Runs in one thread, which must be the main
one: see `spawn`. Times are seconds.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .errors import LaunchError, explain, reads_as_full_disk
from .logs import ROTATE_AT_START, ROTATE_WHILE_RUNNING, last_words, rotate
from .spawn import command_line, signal_quietly, wait_until

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_CALLED_STABLE_AFTER = 60.0
_STILL_WAITING_EVERY = 5.0
_HOUSEKEEPING_EVERY = 60.0


class StopAsked(Exception):
    """A signal asked us to stop while something was being started."""


@dataclass(slots=True)
class Child:
    """One process to keep alive. `launch` starts it; `ready` tells whether it serves."""

    name: str
    launch: Callable[[], subprocess.Popen[bytes]]
    log: Path
    ready: Callable[[], bool] = lambda: True
    stop_signal: int = signal.SIGTERM
    grace: float = 10.0
    patience: float = 60.0
    running: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause: float = _FIRST_PAUSE
    due_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.poll() is None


@dataclass(slots=True)
class Supervisor:
    """Keeps children alive until a signal asks to stop. `pids` is a folder for pid files."""

    say: Callable[[str], None]
    pids: Path
    children: list[Child] = field(default_factory=list)
    signals: int = 0
    _on_terminal: bool = False
    _tidied_at: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP as the wish to stop, for the length of the block."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        # Whoever started us under `nohup` wants us to outlive the terminal.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
            self._on_terminal = os.isatty(1)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        self.signals += 1

    def _look_at_terminal(self) -> None:
        # A closed connection hangs up on make alone (`ssh -t host make up`), which then waits for
        # us without a word; the terminal that fails is the only thing to notice.
        if self._on_terminal and not os.isatty(1):
            self.signals += 1

    def check_stop(self) -> None:
        """Raise StopAsked if a signal has come."""
        self._look_at_terminal()
        if self.signals:
            raise StopAsked

    def start(self, *children: Child) -> None:
        """Start children side by side and wait until each of them serves.

        Raises LaunchError with the end of its log if one dies three times or takes too long, and
        StopAsked if a signal comes meanwhile.
        """
        for child in children:
            rotate(child.log, ROTATE_AT_START)
            self.children.append(child)
            self._launch(child)
        for child in children:
            self._wait_for(child)

    def _wait_for(self, child: Child) -> None:
        began = told = time.monotonic()
        deaths = 0
        while not child.ready():
            self.check_stop()
            now = time.monotonic()
            if not child.alive:
                deaths += 1
                if deaths == 3:
                    raise self._failure(child, "ended at once, three times")
                time.sleep(_FIRST_PAUSE)
                self._launch(child)
            if now - began > child.patience:
                raise self._failure(child, f"is not ready after {child.patience:.0f} s")
            if now - told > _STILL_WAITING_EVERY:
                told = now
                self.say(f"Still waiting for {child.name} ({now - began:.0f} s; {child.log})")
            time.sleep(0.05)
        if not child.alive:
            raise self._failure(child, "ended at once")

    def _failure(self, child: Child, what: str) -> LaunchError:
        words = last_words(child.log)
        if reads_as_full_disk(words):
            return LaunchError(f"The disk is full: {child.name} cannot run. Free some space.")
        code = "" if child.running is None else f" (exit {child.running.poll()})"
        return LaunchError(f"{child.name} {what}{code}. The end of {child.log}:\n{words}")

    def _launch(self, child: Child) -> None:
        try:
            child.running = child.launch()
            child.started_at = time.monotonic()
            child.due_at = None
            note = {
                "pid": child.running.pid,
                "command": command_line(child.running.pid),
                "signal": int(child.stop_signal),
            }
            path = self._pid_file(child)
            # Whole or not at all: killed here, we must not leave a child that nobody can name.
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(note), encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise explain(error, f"starting {child.name}") from error

    def _pid_file(self, child: Child) -> Path:
        self.pids.mkdir(parents=True, exist_ok=True)
        return self.pids / f"{child.name}.json"

    def adopt(self, child: Child) -> None:
        """Keep alive, and stop in its turn, a child that is already running and ready."""
        child.started_at = time.monotonic()
        self.children.append(child)

    def end_leftovers(self) -> bool:
        """End what an earlier supervisor, killed, left running; done before anything starts.

        Says whether the last end was such a one: then ports may need a moment to become free.
        """
        notes = list(self.pids.glob("*.json"))
        for path in notes:
            with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
                note = json.loads(path.read_text(encoding="utf-8"))
                self._end_leftover(path.stem, int(note["pid"]), note["command"], note["signal"])
            path.unlink(missing_ok=True)
        return bool(notes)

    def _end_leftover(self, name: str, pid: int, command: str, number: int) -> None:
        # A pid alone proves nothing: it may be another program's by now.
        if not command or command_line(pid) != command:
            return
        self.say(f"Stopping {name} (pid {pid}), left running by an earlier start")
        signal_quietly(pid, number)
        # The kernel empties a dying process's command line before it closes its files and sockets:
        # only one that is gone, or a zombie, has let go of its port and its locks.
        if not wait_until(lambda: command_line(pid) not in (command, ""), 10):
            signal_quietly(pid, signal.SIGKILL, group=True)
            wait_until(lambda: command_line(pid) not in (command, ""), 10)

    def step(self, name: str, launch: Callable[[], subprocess.Popen[bytes]], log: Path) -> None:
        """Run a command that ends by itself.

        Raises LaunchError with the end of its log if it fails, StopAsked if a signal comes.
        """
        running = launch()
        told = began = time.monotonic()
        while running.poll() is None:
            if self.signals:
                signal_quietly(running.pid, signal.SIGTERM)
                if not wait_until(lambda: running.poll() is not None, 5):
                    signal_quietly(running.pid, signal.SIGKILL, group=True)
                    running.wait()
                raise StopAsked
            now = time.monotonic()
            if now - told > _STILL_WAITING_EVERY:
                told = now
                self.say(f"Still at it: {name} ({now - began:.0f} s)")
            time.sleep(0.02)
        if running.returncode != 0:
            words = last_words(log, 12)
            if reads_as_full_disk(words):
                raise LaunchError(f"The disk is full ({name}). Free some space and start again.")
            raise LaunchError(f"{name} failed. The end of {log}:\n{words}")

    def tend(self, now: float) -> None:
        """One look at every child: notice a death, start again what is due. `now` is monotonic."""
        for child in self.children:
            if child.alive:
                if now - child.started_at > _CALLED_STABLE_AFTER:
                    child.pause = _FIRST_PAUSE
            elif child.due_at is None:
                self._note_death(child, now)
            elif now >= child.due_at:
                self._try_again(child, now)
        if now - self._tidied_at > _HOUSEKEEPING_EVERY:
            self._tidied_at = now
            for child in self.children:
                rotate(child.log, ROTATE_WHILE_RUNNING)

    def _note_death(self, child: Child, now: float) -> None:
        code = child.running.returncode if child.running else None
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
        self.say(
            f"{child.name} ended ({how}); starting it again in {child.pause:g} s ({child.log})"
        )
        child.due_at = now + child.pause
        child.pause = min(child.pause * 2, _LONGEST_PAUSE)

    def _try_again(self, child: Child, now: float) -> None:
        try:
            self._launch(child)
        except LaunchError as error:
            self.say(str(error))
            child.due_at = now + child.pause
            child.pause = min(child.pause * 2, _LONGEST_PAUSE)

    def run(self) -> None:
        """Tend the children until a signal comes."""
        while not self.signals:
            self.tend(time.monotonic())
            self._look_at_terminal()
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop every child, last started first. A further signal cuts the waiting short."""
        patience_of = self.signals
        for child in reversed(self.children):
            running = child.running
            if running is None:
                continue
            if running.poll() is None:
                signal_quietly(running.pid, child.stop_signal)
            deadline = time.monotonic() + child.grace
            while running.poll() is None:
                if time.monotonic() > deadline or self.signals > patience_of:
                    self.say(f"{child.name} did not stop by itself; killing it")
                    break
                time.sleep(0.02)
            # Also when it has ended: a worker of its own may have outlived it.
            signal_quietly(running.pid, signal.SIGKILL, group=True)
            running.wait()
            self._pid_file(child).unlink(missing_ok=True)
        self.children.clear()
