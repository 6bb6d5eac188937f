"""The Postgres of a test session: its address is fixed early, its start waits until it is needed.

Django reads its settings before any conftest is loaded, so the URL must stand by then; but a run
of pure tests must not pay for a server. Invariant: nothing is started before `start` is called,
and a `DATABASE_URL` that the caller has set is used as it is. Each of several test runners side
by side has a server of its own.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from controlplane.local.ports import free_port
from controlplane.local.postgres import EmbeddedPostgres

PREFIX = "switchgear-tests-"
# Runners side by side are children of one that has fixed an address too: not the caller's word.
_OURS = "SWITCHGEAR_TESTS_POSTGRES"


class TestPostgres:
    """Either the server that DATABASE_URL names, or an embedded one in a temporary folder."""

    __test__ = False

    def __init__(self) -> None:
        self._given = os.environ.get("DATABASE_URL")
        if self._given == os.environ.get(_OURS):
            self._given = None
        self._folder: Path | None = None
        self._server: EmbeddedPostgres | None = None
        if self._given is None:
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            # Postgres runs as another user when we are root, and must get in.
            self._folder.chmod(0o711)
            self._server = EmbeddedPostgres(
                self._folder / "postgres", port=free_port(), for_tests=True
            )
            self._server.choose_password()
            os.environ["DATABASE_URL"] = os.environ[_OURS] = self._server.dsn()
            atexit.register(self.stop)

    def dsn(self, dbname: str | None = None) -> str:
        """The URL of a database of this server (of the one that DATABASE_URL names, if None)."""
        address = urlsplit(os.environ["DATABASE_URL"])
        return urlunsplit(address._replace(path=f"/{dbname}")) if dbname else address.geturl()

    def start(self) -> None:
        """Start the server if it is ours and not running yet."""
        if self._server is not None and self._server.pid is None:
            self._server.start()

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


POSTGRES = TestPostgres()
