"""The embedded Postgres: one server for one data directory, healed before each start.

Invariant: the server is our direct child, so its end is always noticed and reaped (an orphaned
postmaster may stay a zombie for ever and block its own lock file). Whoever holds the lock beside
the data directory is the only one to start, stop or repair it. Times are seconds.
"""

import hmac
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from .account import give, owner_of, service_account
from .errors import LaunchError, explain, reads_as_full_disk
from .locks import FolderLock
from .logs import last_words, open_log
from .ports import LOOPBACK, is_free, remembered_port
from .postgres_cluster import (
    DATABASE,
    RUNTIME,
    SUPERUSER,
    check_version,
    make_cluster,
    plain_environment,
    read_password,
    write_settings,
)
from .postgres_home import Home, find_home
from .spawn import command_line, signal_quietly, spawn, wait_until

# After a SIGKILL the old server's children may hold its shared memory for a moment: 0.2 to 1.7 s
# were measured until a new server was let in.
_START_PATIENCE = 30.0
_STOP_PATIENCE = 10.0

_SETTINGS = {
    "listen_addresses": f"'{LOOPBACK}'",
    "unix_socket_directories": "''",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "pglz",
    "random_page_cost": "1.1",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "log_line_prefix": "'%m [%p] '",
    "log_checkpoints": "off",
}
# A test cluster is thrown away, so it need not survive a power cut.
_TEST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
}


def _quiet(_: str) -> None:
    return


class EmbeddedPostgres:
    """A Postgres server below `data_dir`, as a context manager or by `start` and `stop`.

    `port` fixes the port (else the one used last, if free), `log` is where the server writes,
    `say` hears what takes time, `for_tests` gives up durability for speed.
    """

    name = "postgres"
    stop_signal = signal.SIGINT

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int | None = None,
        log: Path | None = None,
        say: Callable[[str], None] = _quiet,
        for_tests: bool = False,
    ) -> None:
        self._wanted = Path(data_dir).absolute()
        self._fixed_port = port
        self.log = log or self._wanted.with_name(f"{self._wanted.name}.log")
        self._say = say
        self._for_tests = for_tests
        self._account = owner_of(self._wanted, service_account())
        self._lock: FolderLock | None = None
        self._home: Home | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.port = port or 0
        self.password = ""
        self._new_password: str | None = None

    def dsn(self, dbname: str = DATABASE) -> str:
        """The URL of one database for the superuser, for any libpq program."""
        return self._url(SUPERUSER, self.password, dbname)

    def runtime_dsn(self, dbname: str = DATABASE) -> str:
        """The URL of the role that the product runs as; its password follows from the other's."""
        password = hmac.digest(self.password.encode(), RUNTIME.encode(), "sha256").hex()
        return self._url(RUNTIME, password, dbname)

    def _url(self, role: str, password: str, dbname: str) -> str:
        who = f"{role}:{quote(password, safe='')}"
        return f"postgresql://{who}@{LOOPBACK}:{self.port}/{quote(dbname, safe='')}"

    def choose_password(self) -> None:
        """Fix the password of a cluster yet to be made, so that `dsn` holds before the start."""
        self.password = self._new_password = secrets.token_urlsafe(24)

    @property
    def data(self) -> Path:
        """The data directory itself, links resolved; known once `prepare` has run."""
        return self._known_home().data

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The server as our child process, None before the start."""
        return self._server

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, None when it does not run."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def prepare(self) -> None:
        """Take the directory, make it if it is missing, end what an earlier life left running.

        Raises LaunchError if another process has the directory or it cannot be used.
        """
        self._home = find_home(self._wanted, self._account)
        data = self._home.data
        self._lock = FolderLock(
            data.with_name(f"{data.name}.lock"),
            f"The database in {data} is in use by process {{pid}}. Stop that one first.",
        ).take()
        try:
            self._prepare_locked(self._home)
        except BaseException:
            self.release()
            raise

    def _prepare_locked(self, home: Home) -> None:
        if not home.data.exists():
            self._say("Creating the Postgres cluster (about a second)")
            make_cluster(home, self._account, sync=not self._for_tests, password=self._new_password)
        check_version(home)
        self._end_leftover()
        try:
            self.password = read_password(home, self._account)
            if self._fixed_port is None:
                self.port = remembered_port(home.data / "switchgear.port")
            elif is_free(self._fixed_port):
                self.port = self._fixed_port
            else:
                raise LaunchError(f"Port {self._fixed_port}, meant for Postgres, is in use.")
            chosen = _SETTINGS | (_TEST_SETTINGS if self._for_tests else {})
            lines = [f"{name} = {value}" for name, value in {**chosen, "port": self.port}.items()]
            write_settings(home.data, self._account, lines)
            self.log.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain(error, f"writing below {home.data}") from error

    def _known_home(self) -> Home:
        if self._home is None:
            raise LaunchError("The embedded Postgres is not prepared yet: call start() first.")
        return self._home

    def _postmaster_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def _end_leftover(self) -> None:
        """Stop a server that outlived its supervisor; disarm a lock file that names a stranger."""
        lines = self._postmaster_file()
        if not lines or not lines[0].strip().isdigit():
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            return
        pid = int(lines[0])
        command = command_line(pid)
        if command is not None and "postgres" in command and str(self.data) in command:
            self._say(f"Stopping the Postgres (pid {pid}) that an earlier start left running")
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal_quietly(pid, number)
                if wait_until(lambda: command_line(pid) is None, _STOP_PATIENCE):
                    break
            else:
                raise LaunchError(f"Postgres (pid {pid}) does not stop; end it and start again.")
        if self._postmaster_file():
            self._disown(lines)

    def _disown(self, lines: list[str]) -> None:
        """Put our pid in the lock file in place of a dead server's, or of a stranger's.

        A zombie's pid, or one given to another program after a reboot, would make Postgres refuse
        to start. It ignores its parent's pid there, and still checks the shared memory that the
        other lines name, a check which deleting the file would lose.
        """
        path = self.data / "postmaster.pid"
        path.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
        give(self._account, path)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the server as our child, without waiting; `ready` tells when it serves."""
        lines = self._postmaster_file()
        if lines and lines[0].strip().isdigit():
            self._disown(lines)
        home = self._known_home()
        with open_log(self.log) as output:
            self._server = spawn(
                [str(home.programs / "postgres"), "-D", str(home.data)],
                env=plain_environment(),
                output=output,
                account=self._account,
                death_signal=self.stop_signal,
            )
        return self._server

    def ready(self) -> bool:
        """True once our own child accepts connections."""
        lines = self._postmaster_file()
        return (
            self.pid is not None
            and len(lines) >= 8
            and lines[0].strip() == str(self.pid)
            and lines[7].strip() == "ready"
        )

    def start(self) -> Self:
        """Prepare, spawn and wait until it serves. Raises LaunchError with the log's last lines."""
        self.prepare()
        deadline = time.monotonic() + _START_PATIENCE
        try:
            while True:
                self.spawn()
                wait_until(self._settled, max(0.0, deadline - time.monotonic()))
                if self.ready():
                    return self
                if self.pid is not None or time.monotonic() + 0.3 > deadline:
                    raise LaunchError(f"Postgres did not start.\n{last_words(self.log)}")
                self._give_up_if_hopeless()
                time.sleep(0.3)
        except BaseException:
            self.stop()
            raise

    def _settled(self) -> bool:
        return self.ready() or self.pid is None

    def _give_up_if_hopeless(self) -> None:
        words = last_words(self.log)
        if reads_as_full_disk(words):
            raise LaunchError(
                "The disk is full: Postgres cannot start. Free some space and start again; "
                "nothing that was stored is lost."
            )
        if "pre-existing shared memory" not in words and "lock file" not in words:
            raise LaunchError(f"Postgres did not start.\n{words}")

    def stop(self) -> None:
        """Stop the server (fast shutdown), reap it, and let go of the directory."""
        server = self._server
        if server is not None:
            for number in (self.stop_signal, signal.SIGQUIT, signal.SIGKILL):
                if server.poll() is None:
                    signal_quietly(server.pid, number)
                try:
                    server.wait(_STOP_PATIENCE)
                    break
                except subprocess.TimeoutExpired:
                    continue
        self._server = None
        self.release()

    def release(self) -> None:
        """Let go of the directory, for a server that somebody else has stopped."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
