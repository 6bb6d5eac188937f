"""Desired state arrives, and whatever the stream does, what runs keeps running."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import contact, sse
from gateway.checkpoint import Checkpoint
from gateway.clock import ClockOffset
from gateway.config import ControlPlane as Settings
from gateway.contact import Contact, NoAnswer
from gateway.live import Live
from gateway.watch import POLL_S, SILENCE_S, Watcher
from tests.gateway import build
from tests.gateway.control_plane import ControlPlane, serving
from tests.gateway.fake_clock import FakeClock, until


class Watching:
    """A watcher at work on a fake clock. The jitter's draw is always 1: the longest wait."""

    def __init__(self, double: ControlPlane, clock: FakeClock, directory: Path) -> None:
        self.double, self.clock = double, clock
        self.live: Live = build.live(clock)
        self.checkpoint = Checkpoint(directory / "0.json", "demo")
        self.draw = 1.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watcher]:
        async with Contact(Settings(self.double.url, "t"), "demo") as talking:
            watcher = Watcher(
                talking, self.live, self.checkpoint, self.clock, ClockOffset(), lambda: self.draw
            )
            task = asyncio.create_task(watcher.run())
            try:
                yield watcher
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @property
    def generation(self) -> int:
        return self.live.in_force.generation

    async def streaming(self, count: int = 1) -> None:
        await until(lambda: self.double.streams == count)


@pytest_asyncio.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    async with serving(ControlPlane()) as double:
        yield Watching(double, FakeClock(), tmp_path)


async def test_a_snapshot_on_the_stream_is_in_force_and_on_the_disk(watching: Watching) -> None:
    async with watching.running() as watcher:
        await watching.streaming()
        sent = build.snapshot_bytes(4, overrides=[build.override("o1", "ForceOpen", "south/")])
        await watching.double.send_snapshot(sent)
        await until(lambda: watching.generation == 4 and watcher.settled.is_set())
        assert watching.live.in_force.source == "Stream"
        saved = watching.checkpoint.load()
        assert saved is not None
        assert saved.raw == sent


async def test_over_a_slow_stream_an_override_ends_at_its_time_and_not_later(
    watching: Watching,
) -> None:
    clock = watching.clock
    sent = build.snapshot_bytes(2, overrides=[build.override("o", "ForceOpen", "south/", 60)])
    async with watching.running() as watcher:
        await watching.streaming()
        watcher._offset.measured(clock.wall(), clock.wall(), 0.2, clock.monotonic())
        await clock.advance(20)
        clock.step_wall(3600)  # the time of day of this host says nothing of it
        await watching.double.send_snapshot(sent)
        await until(lambda: watching.generation == 2)

        def modes() -> set[str]:
            watching.live.tick(clock.monotonic())
            return {c.mode for c in watching.live.circuit_statuses(clock.monotonic())}

        clock.step(39.0)
        assert modes() == {"Auto", "ForceOpen"}
        clock.step(1.5)
        assert modes() == {"Auto"}


async def test_a_snapshot_in_pieces_is_applied_when_it_is_whole(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        frame = b"event: snapshot\r\ndata: " + build.snapshot_bytes(4) + b"\r\n\r\n"
        for index in range(0, len(frame), 37):
            assert watching.generation == 0
            await watching.double.send(frame[index : index + 37])
        await until(lambda: watching.generation == 4)


async def test_a_lower_generation_is_ignored_and_another_epoch_is_not(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(9))
        await until(lambda: watching.generation == 9)
        old = build.override("o1", "ForceOpen", "south/")
        await watching.double.send_snapshot(build.snapshot_bytes(8, overrides=[old]))
        await watching.double.send_snapshot(build.snapshot_bytes(3, epoch="e2"))
        await until(lambda: watching.generation == 3)
        assert watching.live.in_force.epoch == "e2"


async def test_silence_ends_a_stream_and_keeps_what_runs(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2)
        await watching.clock.advance(24.0)
        # Any byte is a sign of life, a comment too.
        await watching.double.send(b": here\n")
        await asyncio.sleep(0.05)
        await watching.clock.advance(24.0)
        assert len(watching.double.queries) == 1
        await watching.clock.advance(1.5)
        await until(lambda: watching.clock.next_wake is not None)
        await watching.clock.advance(0.5)
        await until(lambda: len(watching.double.queries) == 2)
        assert watching.double.queries[1]["generation"] == "2"
        assert watching.double.queries[1]["hash"] == watching.live.in_force.hash
        assert watching.generation == 2


async def test_a_stream_that_is_accepted_and_never_answered_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contact, "STREAM_SILENCE_SECONDS", 0.1)
    # The kernel takes the connection, and nobody ever reads from it: a stopped process.
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        url = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        async with Contact(Settings(url, "t"), "demo") as talking, asyncio.timeout(20):
            with pytest.raises(NoAnswer):
                async with talking.watch("", 0, ""):
                    pass


async def test_a_stream_that_ends_comes_back_with_jitter(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.bookmark()
        await asyncio.sleep(0.05)
        watching.double.end_streams()
        await until(lambda: watching.clock.next_wake == pytest.approx(0.5))
        assert len(watching.double.queries) == 1
        await watching.clock.advance(0.5)
        await watching.streaming()


@pytest.mark.parametrize("status", [500, 200], ids=["refused", "ended without a word"])
async def test_reconnects_wait_longer_up_to_eight_seconds(watching: Watching, status: int) -> None:
    watching.double.watch_script.extend(web.Response(status=status) for _ in range(7))
    async with watching.running():
        await watching.clock.advance_until(lambda: len(watching.double.queries) == 7)
        polls = (POLL_S * 1.25, SILENCE_S)
        waits = [asked for asked in watching.clock.asked if asked not in polls]
        assert waits[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


async def test_too_many_streams_waits_as_long_as_it_is_told(watching: Watching) -> None:
    busy = web.Response(status=503, headers={"Retry-After": "30"})
    watching.double.watch_script.append(busy)
    async with watching.running():
        await until(lambda: len(watching.double.queries) == 1)
        await asyncio.sleep(0.02)
        await watching.clock.advance(29.5)
        await asyncio.sleep(0.02)
        assert len(watching.double.queries) == 1
        await watching.clock.advance(0.5)
        await watching.streaming()


async def test_gone_fetches_the_plain_form_and_keeps_what_runs(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2)
        watching.double.watch_script.append(web.Response(status=410))
        watching.double.snapshot = build.snapshot_bytes(5)
        watching.double.end_streams()
        await until(lambda: watching.clock.next_wake == pytest.approx(0.5))
        assert watching.generation == 2
        await watching.clock.advance(0.5)
        await until(lambda: watching.generation == 5)
        assert watching.live.in_force.source == "Poll"


@pytest.mark.parametrize(
    "seen", [{"generation": 7}, {"epoch": "e2", "generation": 1}], ids=["generation", "epoch"]
)
async def test_a_bookmark_of_what_we_do_not_have_fetches_it(
    watching: Watching, seen: dict[str, object]
) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2)
        epoch = str(seen.get("epoch", "e1"))
        watching.double.snapshot = build.snapshot_bytes(int(str(seen["generation"])), epoch=epoch)
        await watching.double.bookmark(**seen)
        await until(lambda: watching.live.in_force.epoch == epoch)
        await until(lambda: watching.generation == seen["generation"])
        assert watching.double.etags == [None]


async def test_a_bookmark_shares_absolute_limits_among_the_instances(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2)
        now = watching.clock.monotonic()
        watching.live.budgets("acme").ask(build.SOUTH, now)
        await watching.double.bookmark(generation=2, instances=3)
        await until(lambda: {b.balance for b in watching.live.budget_statuses(now)} == {1})


async def test_the_poll_finds_what_a_healthy_looking_stream_does_not_say(
    watching: Watching,
) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.bookmark(epoch="", generation=0)
        await asyncio.sleep(0.05)
        watching.double.snapshot = build.snapshot_bytes(6)
        for _ in range(4):
            await watching.clock.advance(20)
            await watching.double.send(b": alive\n")
            await asyncio.sleep(0.03)
        await until(lambda: watching.generation == 6)
        assert len(watching.double.queries) == 1


async def test_without_a_stream_the_poll_is_quick_and_conditional(watching: Watching) -> None:
    watching.double.watch_script.extend(web.Response(status=404) for _ in range(100))
    watching.double.snapshot = build.snapshot_bytes(3)
    async with watching.running():
        await watching.clock.advance_until(lambda: len(watching.double.etags) == 2)
        assert watching.clock.monotonic() < 1000 + 2 * POLL_S * 1.25 + 2
        assert watching.generation == 3
        assert watching.double.etags[1] == f'"3-{watching.live.in_force.hash}"'


async def test_hearing_of_what_cannot_be_fetched_does_not_fetch_without_pause(
    watching: Watching,
) -> None:
    async with watching.running() as watcher:
        await watching.streaming()
        for _ in range(50):
            watcher.heard("e1", 9, 1)
            await asyncio.sleep(0.002)
        assert len(watching.double.etags) == 1
        await watching.clock.advance(1.0)
        await until(lambda: len(watching.double.etags) == 2)


async def test_junk_on_the_stream_changes_nothing(watching: Watching) -> None:
    async with watching.running():
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2)
        await watching.double.send_snapshot(b'{"gateway": "demo"}')
        await watching.double.send_snapshot(build.snapshot_bytes(7).replace(b'"demo"', b'"other"'))
        await watching.double.send(b"event: bookmark\ndata: {\n\n")
        await until(lambda: watching.clock.next_wake == pytest.approx(0.5))
        assert watching.generation == 2
        await watching.clock.advance(0.5)
        await until(lambda: len(watching.double.queries) == 2)
        assert watching.double.queries[1]["generation"] == "2"


async def test_a_disk_that_takes_nothing_does_not_stop_a_snapshot(
    watching: Watching, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    watching.checkpoint = Checkpoint(tmp_path / "file" / "0.json", "demo")
    async with watching.running() as watcher:
        await watching.streaming()
        await watching.double.send_snapshot(build.snapshot_bytes(2))
        await until(lambda: watching.generation == 2 and watcher.settled.is_set())
        assert watcher.checkpointed_generation == 0
        (tmp_path / "file").unlink()
        # The next poll tries again, and nobody has to change anything for it.
        await watching.clock.advance_until(lambda: watcher.checkpointed_generation == 2)
        assert watching.checkpoint.load() is not None


def test_frames_come_out_whole_however_the_bytes_are_cut() -> None:
    text = b": hello\nid: 1\nevent: a\ndata: x\ndata: y\n\nevent: none\n\r\ndata:z\r\n\r\n"
    wanted = [sse.Frame("a", b"x\ny"), sse.Frame("message", b"z")]
    for step in range(1, len(text) + 1):
        frames = sse.Frames()
        pieces = [text[index : index + step] for index in range(0, len(text), step)]
        assert [frame for piece in pieces for frame in frames.feed(piece)] == wanted


def test_a_frame_without_an_end_is_not_kept_for_ever() -> None:
    frames = sse.Frames()
    for _ in range(32):
        assert not list(frames.feed(b"x" * 2**20))
    with pytest.raises(sse.TooLong):
        list(frames.feed(b"x"))


told = st.tuples(
    st.sampled_from(["e1", "e2"]), st.integers(1, 6), st.sampled_from(["Stream", "Poll"])
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(told, st.just(None)), max_size=12))
def test_whatever_comes_in_whatever_order_the_disk_holds_what_is_in_force(
    arrivals: list[tuple[str, int, str] | None],
) -> None:
    """Late, doubled and broken snapshots of two epochs: none goes back within its epoch."""
    clock = FakeClock()
    live = build.live(clock)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder) / "0.json", "demo")
        nobody = Contact(Settings("http://127.0.0.1:9", "t"), "demo")
        watcher = Watcher(nobody, live, checkpoint, clock, ClockOffset(), lambda: 1.0)
        wanted: tuple[str, int] = ("", 0)

        async def arrive() -> None:
            nonlocal wanted
            for number, arrival in enumerate(arrivals):
                if arrival is None:
                    watcher._offer(build.snapshot_bytes(9)[:-20], "Stream")
                    continue
                epoch, generation, source = arrival
                raw = build.snapshot_bytes(generation, epoch=epoch)
                watcher._offer(raw, "Stream" if source == "Stream" else "Poll")
                if epoch != wanted[0] or generation > wanted[1]:
                    wanted = (epoch, generation)
                assert (live.in_force.epoch, live.in_force.generation) == wanted
                if number % 2 and number + 1 < len(arrivals):
                    continue  # the next one comes while this one is being written
                await watcher.settled.wait()
                assert watcher.checkpointed_generation == wanted[1]
                saved = checkpoint.load()
                assert saved is not None
                assert saved.raw == build.snapshot_bytes(wanted[1], epoch=wanted[0])

        asyncio.run(arrive())
