"""The embedded broker answers to its password only, keeps its queue, and heals."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from controlplane.local.broker import EmbeddedBroker
from controlplane.local.errors import LaunchError
from controlplane.local.spawn import command_line, wait_until


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def broker(tmp_path: Path, heard: list[str]) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path / "broker", say=heard.append)
    yield made
    made.stop()


def push(broker: EmbeddedBroker) -> int:
    with redis.Redis.from_url(broker.url()) as client:
        return int(client.rpush("queue", "task"))  # type: ignore[arg-type]


def flush_to_disk(broker: EmbeddedBroker) -> None:
    """Wait until the append-only file is on disk, by asking for exactly that."""
    with redis.Redis.from_url(broker.url()) as client:
        client.execute_command("WAITAOF", 1, 0, 2000)


def test_queue_survives_a_stop_and_a_kill(broker: EmbeddedBroker) -> None:
    broker.start()
    address = broker.url()
    assert push(broker) == 1
    broker.stop()
    broker.start()
    assert broker.url() == address
    assert push(broker) == 2
    flush_to_disk(broker)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    assert wait_until(lambda: broker.pid is None, 5)
    broker.stop()
    broker.start()
    assert push(broker) == 3


def test_needs_the_password(broker: EmbeddedBroker) -> None:
    broker.start()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as link:
        link.sendall(b"PING\r\n")
        assert link.recv(100).startswith(b"-NOAUTH")


def test_moves_when_its_port_is_taken(broker: EmbeddedBroker) -> None:
    broker.start()
    before = broker.port
    broker.stop()
    with socket.create_server(("127.0.0.1", before)):
        broker.start()
        assert broker.port != before
        assert push(broker) == 1


def test_second_broker_on_the_folder_is_refused(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.start()
    with pytest.raises(LaunchError, match=f"in use by process {os.getpid()}"):
        EmbeddedBroker(tmp_path / "broker").start()


def test_leftover_server_is_ended(broker: EmbeddedBroker, tmp_path: Path, heard: list[str]) -> None:
    broker.start()
    orphan = broker.pid
    assert orphan is not None
    assert push(broker) == 1
    broker.release()
    with EmbeddedBroker(tmp_path / "broker", say=heard.append) as after:
        assert command_line(orphan) is None
        assert push(after) == 2
    assert heard == [f"Stopping the broker (pid {orphan}) that an earlier start left running"]


def test_damaged_file_is_put_aside(
    broker: EmbeddedBroker, tmp_path: Path, heard: list[str]
) -> None:
    broker.start()
    push(broker)
    broker.stop()
    (log,) = (tmp_path / "broker" / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"this is no list of commands\r\n" * 10)
    broker.start()
    assert push(broker) == 1
    assert "damaged" in heard[0]
    assert list((tmp_path / "broker").glob("appendonlydir.damaged-*"))
