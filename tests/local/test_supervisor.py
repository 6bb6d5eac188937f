"""The supervisor keeps real child programs alive, and leaves none behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.local.children import Child, StopAsked, Supervisor
from controlplane.local.errors import LaunchError
from controlplane.local.logs import last_words, open_log, rotate
from controlplane.local.spawn import command_line, spawn, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
FOREVER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, heard: list[str]) -> Iterator[Supervisor]:
    made = Supervisor(heard.append, tmp_path / "run")
    yield made
    made.stop()


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., Child]:
    """Make a child from Python code; it is ready once its log holds a word."""

    def make(name: str, code: str = FOREVER, **options: float) -> Child:
        log = tmp_path / f"{name}.log"

        def launch() -> subprocess.Popen[bytes]:
            with open_log(log) as output:
                return spawn([sys.executable, "-c", code], env=dict(os.environ), output=output)

        return Child(name, launch, log, lambda: bool(last_words(log)), **options)  # type: ignore[arg-type]

    return make


def pid_of(child: Child) -> int:
    assert child.running is not None
    return child.running.pid


def test_the_note_of_a_child_is_never_seen_half_written(
    supervisor: Supervisor, child: Callable[..., Child], tmp_path: Path
) -> None:
    notes = tmp_path / "run"
    notes.mkdir()
    (notes / "web.json").write_text("what an earlier start wrote")
    with (notes / "web.json").open() as reader:
        supervisor.start(child("web"))
        assert reader.read() == "what an earlier start wrote"
    assert [path.name for path in notes.iterdir()] == ["web.json"]


def test_starts_only_when_ready_and_stops_in_reverse(
    supervisor: Supervisor, child: Callable[..., Child], tmp_path: Path
) -> None:
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        f"    open({str(order)!r}, 'a').write(sys.argv[0] and NAME)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    for name in "abc":
        supervisor.start(child(name, f"NAME = {name!r}\n{code}"))
        assert last_words(tmp_path / f"{name}.log") == "up"
    supervisor.stop()
    assert order.read_text() == "cba"
    assert list((tmp_path / "run").iterdir()) == []


def test_dead_child_is_started_again_after_a_growing_pause(
    supervisor: Supervisor, child: Callable[..., Child], heard: list[str]
) -> None:
    victim = child("victim")
    supervisor.start(victim)
    first = pid_of(victim)
    now = time.monotonic()
    for pause in (0.5, 1.0):
        os.kill(pid_of(victim), signal.SIGKILL)
        assert wait_until(lambda: not victim.alive, 5)
        supervisor.tend(now)
        supervisor.tend(now + pause - 0.1)
        assert not victim.alive
        supervisor.tend(now + pause)
        assert victim.alive
    assert pid_of(victim) != first
    assert "victim ended (was killed by signal 9); starting it again in 0.5 s" in heard[0]
    assert "in 1 s" in heard[1]


def test_pause_is_short_again_after_a_stable_minute(
    supervisor: Supervisor, child: Callable[..., Child]
) -> None:
    victim = child("victim")
    supervisor.start(victim)
    victim.pause = 16.0
    supervisor.tend(victim.started_at + 61)
    assert victim.pause == 0.5


def test_child_that_cannot_start_is_reported_with_its_last_words(
    supervisor: Supervisor, child: Callable[..., Child]
) -> None:
    broken = child("broken", "raise SystemExit('no such setting')")
    broken.ready = lambda: False
    with pytest.raises(LaunchError, match=r"(?s)broken ended at once.*no such setting"):
        supervisor.start(broken)


def test_child_that_is_never_ready_is_reported(
    supervisor: Supervisor, child: Callable[..., Child]
) -> None:
    slow = child("slow", patience=0.3)
    slow.ready = lambda: False
    with pytest.raises(LaunchError, match="slow is not ready after 0 s"):
        supervisor.start(slow)


def test_full_disk_in_a_childs_log_is_told_as_such(
    supervisor: Supervisor, child: Callable[..., Child]
) -> None:
    full = child("full", "raise OSError(28, 'No space left on device')")
    full.ready = lambda: False
    with pytest.raises(LaunchError, match="The disk is full: full cannot run"):
        supervisor.start(full)


def test_stubborn_child_is_killed_after_its_grace(
    supervisor: Supervisor, child: Callable[..., Child], heard: list[str]
) -> None:
    stubborn = child("stubborn", STUBBORN, grace=0.2)
    supervisor.start(stubborn)
    pid = pid_of(stubborn)
    supervisor.stop()
    assert command_line(pid) is None
    assert heard == ["stubborn did not stop by itself; killing it"]


def test_grandchild_that_outlives_its_parent_is_ended_too(
    supervisor: Supervisor, child: Callable[..., Child], tmp_path: Path
) -> None:
    code = (
        "import subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    supervisor.start(child("parent", code))
    worker = int(last_words(tmp_path / "parent.log"))
    supervisor.stop()
    assert wait_until(lambda: command_line(worker) is None, 5)


def test_signal_while_starting_asks_to_stop(
    supervisor: Supervisor, child: Callable[..., Child]
) -> None:
    slow = child("slow")
    slow.ready = lambda: False
    with supervisor.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StopAsked):
            supervisor.start(slow)
    supervisor.stop()
    assert not slow.alive


def test_signal_ends_the_run(supervisor: Supervisor, child: Callable[..., Child]) -> None:
    supervisor.start(child("one"))
    with supervisor.listening():
        os.kill(os.getpid(), signal.SIGINT)
        supervisor.run()
    assert supervisor.signals == 1


def test_lost_terminal_ends_the_run(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from controlplane.local.children import Supervisor\n"
        f"supervisor = Supervisor(lambda _: None, Path({str(tmp_path)!r}))\n"
        "with supervisor.listening():\n"
        "    print('up', flush=True)\n"
        "    supervisor.run()\n"
    )
    ours, theirs = os.openpty()
    # No session of its own and no controlling terminal: so no SIGHUP comes, as under `ssh -t`.
    # These tests may themselves run under `nohup`, whose children are to outlive the terminal.
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        stdout=theirs,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as program:
        os.close(theirs)
        said = b""
        while not said.endswith(b"\n"):
            said += os.read(ours, 10)
        assert program.poll() is None
        os.close(ours)
        try:
            assert program.wait(15) == 0
        finally:
            program.kill()


def test_failed_step_shows_the_end_of_its_log(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "step.log"

    def launch() -> subprocess.Popen[bytes]:
        with open_log(log) as output:
            code = "import sys; print('table is missing'); sys.exit(3)"
            return spawn([sys.executable, "-c", code], env=dict(os.environ), output=output)

    with pytest.raises(LaunchError, match=r"(?s)migrate failed.*table is missing"):
        supervisor.step("migrate", launch, log)


if sys.platform == "linux":  # elsewhere nothing tells children; see the test below

    def test_children_of_a_killed_supervisor_end(tmp_path: Path) -> None:
        code = (
            "import os, subprocess, sys\n"
            "from controlplane.local.spawn import spawn\n"
            f"child = spawn([sys.executable, '-c', {FOREVER!r}], env=dict(os.environ), output=-3)\n"
            "print(child.pid, flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert command_line(pid) is not None
            parent.kill()
        assert wait_until(lambda: command_line(pid) is None, 5)


def test_leftover_of_an_earlier_supervisor_is_ended(
    tmp_path: Path, child: Callable[..., Child], heard: list[str]
) -> None:
    earlier = Supervisor(heard.append, tmp_path / "run")
    left = child("left")
    earlier.start(left)
    later = Supervisor(heard.append, tmp_path / "run")
    later.end_leftovers()
    assert not left.alive
    assert heard == [f"Stopping left (pid {pid_of(left)}), left running by an earlier start"]
    earlier.stop()


def test_leftover_without_a_command_line_is_still_dying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[str]
) -> None:
    seen = ["serve", "serve", "", "", None]
    asked: list[int] = []

    def dying(pid: int) -> str | None:
        asked.append(pid)
        return seen[len(asked) - 1]

    monkeypatch.setattr("controlplane.local.children.command_line", dying)
    monkeypatch.setattr("controlplane.local.children.signal_quietly", lambda *_, **__: None)
    run = tmp_path / "run"
    run.mkdir()
    (run / "web.json").write_text('{"pid": 4194999, "command": "serve", "signal": 15}')
    Supervisor(heard.append, run).end_leftovers()
    assert len(asked) == len(seen), "it went on before the process was gone"


def test_pid_file_that_names_a_stranger_harms_nobody(
    supervisor: Supervisor, child: Callable[..., Child], tmp_path: Path
) -> None:
    stranger = child("stranger")
    supervisor.start(stranger)
    note = tmp_path / "run" / "stranger.json"
    note.write_text(note.read_text().replace("time.sleep", "time.snooze"))
    (tmp_path / "run" / "odd.json").write_text("not JSON")
    Supervisor(lambda _: None, tmp_path / "run").end_leftovers()
    assert stranger.alive


def test_log_is_rotated_under_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with open_log(path) as writer:
        writer.write(b"x" * 1000)
        writer.flush()
        assert rotate(path, 500)
        writer.write(b"after")
        writer.flush()
    assert path.read_bytes() == b"after"
    assert (tmp_path / "a.log.1").stat().st_size == 1000
    assert not rotate(path, 500)
