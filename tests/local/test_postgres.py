"""The embedded Postgres heals whatever an earlier life left: each case breaks a real server."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from controlplane.local.errors import LaunchError
from controlplane.local.postgres import EmbeddedPostgres
from controlplane.local.spawn import command_line, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(open_folder: Path) -> Path:
    """A var folder; the cluster in it is made once, by the first test that needs it."""
    return open_folder


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedPostgres]:
    made = EmbeddedPostgres(folder / "postgres", for_tests=True)
    yield made
    made.stop()


def count_rows(server: EmbeddedPostgres) -> int:
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def another_program(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that has started the server: it, and the postmaster's pid. Killed at last."""
    code = (
        "import sys\n"
        "from controlplane.local.postgres import EmbeddedPostgres\n"
        f"server = EmbeddedPostgres({str(folder / 'postgres')!r}, for_tests=True).start()\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        try:
            yield program, int(program.stdout.readline())
        finally:
            program.kill()


def test_rows_survive_a_stop_and_a_killed_postmaster(server: EmbeddedPostgres) -> None:
    server.start()
    before = count_rows(server)
    server.stop()
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert wait_until(lambda: server.pid is None, 5)
    server.stop()
    server.start()
    assert count_rows(server) == before + 1


def test_keeps_port_and_password_across_starts(server: EmbeddedPostgres) -> None:
    server.start()
    first = server.dsn()
    server.stop()
    server.start()
    assert server.dsn() == first


def test_moves_when_its_port_is_taken(server: EmbeddedPostgres) -> None:
    server.start()
    before = server.port
    server.stop()
    with socket.create_server(("127.0.0.1", before)):
        server.start()
        assert server.port != before
        assert count_rows(server) > 0


def test_refuses_a_wrong_password(server: EmbeddedPostgres) -> None:
    server.start()
    wrong = re.sub(r":[^:@]*@", ":wrong@", server.dsn())
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_refuses_a_directory_in_use_and_names_the_holder(folder: Path) -> None:
    with (
        another_program(folder) as (other, _),
        pytest.raises(LaunchError, match=f"in use by process {other.pid}"),
    ):
        EmbeddedPostgres(folder / "postgres", for_tests=True).start()


def test_server_ends_with_a_killed_supervisor_and_starts_again(
    folder: Path, server: EmbeddedPostgres
) -> None:
    with another_program(folder) as (_, pid):
        assert command_line(pid) is not None
    server.start()
    assert server.pid != pid
    assert command_line(pid) is None
    assert count_rows(server) > 0


def test_stops_a_server_left_running_without_its_supervisor(
    folder: Path, server: EmbeddedPostgres
) -> None:
    """What macOS leaves behind after kill -9, where no signal tells the server."""
    server.start()
    orphan = server.pid
    assert orphan is not None
    server.release()
    heard: list[str] = []
    after = EmbeddedPostgres(folder / "postgres", for_tests=True, say=heard.append)
    try:
        after.start()
        assert after.pid != orphan
        assert command_line(orphan) is None
        assert any(str(orphan) in line for line in heard)
        assert count_rows(after) > 0
    finally:
        after.stop()


def test_lock_file_that_names_a_stranger_is_harmless(
    folder: Path, server: EmbeddedPostgres
) -> None:
    """After a reboot the old pid may belong to anybody; that program must be left alone."""
    server.start()
    data = server.data
    lines = (data / "postmaster.pid").read_text().splitlines()
    server.stop()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        lock = data / "postmaster.pid"
        lock.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        owner = data.stat()
        os.chown(lock, owner.st_uid, owner.st_gid)
        server.start()
        assert count_rows(server) > 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_empty_lock_file_is_harmless(server: EmbeddedPostgres) -> None:
    server.start()
    data = server.data
    server.stop()
    (data / "postmaster.pid").touch()
    server.start()
    assert count_rows(server) > 0


def test_lost_password_is_replaced(server: EmbeddedPostgres) -> None:
    server.start()
    before = server.password
    data = server.data
    server.stop()
    (data / "switchgear.password").unlink()
    server.start()
    assert server.password != before
    assert count_rows(server) > 0


def test_half_made_cluster_is_made_again(folder: Path) -> None:
    place = folder / "interrupted"
    place.mkdir()
    half = place / "postgres.half-abc" / "data"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    place.chmod(0o711)
    with EmbeddedPostgres(place / "postgres", for_tests=True) as server:
        assert count_rows(server) == 1
        assert sorted(path.name for path in place.glob("*half*")) == []


def test_interrupted_creation_leaves_no_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "cut"
    place.mkdir()
    place.chmod(0o711)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("controlplane.local.postgres_cluster._sync_folder", cut)
        patch.setattr(Path, "rename", cut)
        with pytest.raises(KeyboardInterrupt):
            EmbeddedPostgres(place / "postgres", for_tests=True).start()
    assert not (place / "postgres").exists()
    with EmbeddedPostgres(place / "postgres", for_tests=True) as server:
        assert count_rows(server) == 1


def test_cluster_of_another_major_version_is_refused_with_the_way_out(
    folder: Path, server: EmbeddedPostgres
) -> None:
    server.start()
    data = server.data
    server.stop()
    version = (data / "PG_VERSION").read_text()
    (data / "PG_VERSION").write_text("15\n")
    try:
        with pytest.raises(LaunchError, match=r"made by Postgres 15.*pg_dump"):
            server.start()
    finally:
        (data / "PG_VERSION").write_text(version)
    assert server.start().pid


def test_folder_that_is_no_cluster_is_refused(folder: Path) -> None:
    (folder / "mistaken").mkdir()
    with pytest.raises(LaunchError, match="not a Postgres cluster"):
        EmbeddedPostgres(folder / "mistaken").start()
