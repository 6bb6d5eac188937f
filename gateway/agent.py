"""One worker's memory and its talk with the control plane, put together.

Invariants: entering it never waits for the control plane: what the disk holds is in force when
``async with`` begins; leaving it seals the spool, tries for ``GOODBYE_S`` to send what is left and
to say goodbye, and leaves the rest to the next boot. A part that fails is logged and started again.

Without a control plane the spool keeps the newest ``ALONE_BYTES`` a worker, for a later one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

from controlplane.wire.events import Receipt
from controlplane.wire.status import SpoolStatus
from gateway import snapshot
from gateway.adoption import Adopted, adopt, forget_oldest
from gateway.checkpoint import Checkpoint
from gateway.clock import Clock, ClockOffset, SystemClock
from gateway.config import Config, ControlPlane
from gateway.contact import Contact, NoAnswer
from gateway.host import Host
from gateway.live import Live
from gateway.local_control import LocalControl
from gateway.local_overrides import LocalOverrides, Store
from gateway.outbox import Identity
from gateway.report import Accepted, Reporter, Sender
from gateway.snapshot import SnapshotRefused
from gateway.spool import Bounds, Spool
from gateway.status import StatusSender
from gateway.watch import Watcher

log = logging.getLogger(__name__)

TICK_S = 1.0
ADOPT_EVERY_S = 30.0
FORGET_EVERY_S = 600.0
GOODBYE_S = 2.0
AGAIN_S = 1.0
ALONE_BYTES = 64 * 2**20


class Agent:
    """Use it as an async context manager; ``live`` and ``spool`` are for the request path."""

    def __init__(
        self, config: Config, index: int = 0, *, host: str | None = None, clock: Clock | None = None
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        boot_id, slot = uuid4(), f"{host or socket.gethostname()}/{index}"
        data = config.gateway.data_dir
        self._bounds = Bounds() if config.control_plane else Bounds(disk=ALONE_BYTES)
        self._spools = data / "spool"
        identity = Identity(boot_id, slot, config.gateway.name)
        self.spool = Spool(self._spools, index, identity, self._clock, self._bounds)
        self.live = Live(config, boot_id, slot, self._clock, self.spool)
        self._local = LocalOverrides(Store(data / "local"), self.live.hold_local, self._clock)
        self._control = LocalControl(data / "control", index, self.live, self._local, self._clock)
        self._host = Host(data / "run", str(boot_id), self._clock.monotonic)
        self._checkpoint = Checkpoint(data / "checkpoint" / f"{index}.json", config.gateway.name)
        self._offset = ClockOffset()
        self._adopted: list[Adopted] = []
        # Both look into dead workers' spools under their locks: what one holds the other passes by.
        self._looking = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = AsyncExitStack()
        self._epoch = ""
        self._asked: set[UUID] = set()
        self._reporter: Reporter | None = None
        self._status: StatusSender | None = None

    async def __aenter__(self) -> Agent:
        self._load()
        self._local.load()
        await self._closing.enter_async_context(self._control)
        self._host.start(self.live.follow)
        self.live.share_with(self._host)
        self._start("tick", self._tick)
        self._start("forget", self._forget)
        if self._config.control_plane is not None:
            await self._join(self._config.control_plane)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._say_goodbye()
        except TimeoutError:
            log.warning(
                "the control plane did not answer the goodbye; the next boot sends the rest"
            )
        for adopted in self._adopted:
            adopted.finish()
        self._host.close()
        self.spool.close()
        await self._closing.aclose()

    def _load(self) -> None:
        """Put what the disk holds in force."""
        saved = self._checkpoint.load()
        if saved is None:
            return
        try:
            received = snapshot.read(saved.raw, self._config.gateway.name)
        except SnapshotRefused as error:
            log.warning("the saved configuration is not used: %s", error)
            return
        now, wall = self._clock.monotonic(), saved.wall(self._clock.wall())
        self.live.remember(snapshot.as_before(received, saved.last_good), now, wall)
        self.live.apply(received, "DiskCache", now, wall)

    async def _join(self, control_plane: ControlPlane) -> None:
        contact = Contact(control_plane, self._config.gateway.name)
        await self._closing.enter_async_context(contact)
        self._control.trouble = lambda: contact.trouble
        watcher = Watcher(contact, self.live, self._checkpoint, self._clock, self._offset)

        def known() -> tuple[str, int]:
            return self.live.in_force.epoch, self.live.in_force.generation

        def on_receipt(receipt: Receipt) -> None:
            watcher.heard_of(receipt.epoch, receipt.generation)

        accepted = Accepted()

        def sender_of(adopted: Adopted) -> Sender:
            box = adopted.outbox
            return Sender(
                contact, self._clock, box, known, on_receipt, accepted=accepted, shares=True
            )

        own = Sender(
            contact,
            self._clock,
            self.spool.outbox,
            known,
            on_receipt,
            accepted=accepted,
            more=self.spool.seal,
        )
        self._reporter = Reporter(self.spool, own, self._clock)
        watcher.on_epoch = self._epoch_heard
        self._status = StatusSender(
            contact,
            self.live,
            self._spool_status,
            watcher,
            self._clock,
            self._offset,
            self._local,
        )
        self.live.on_change = self._status.changed
        self._start("report", self._reporter.run)
        self._start("watch", watcher.run)
        self._start("status", self._status.run)
        self._start("adopt", lambda: self._adopt(sender_of))

    async def _say_goodbye(self) -> None:
        """Goodbye first: it is short, and what the flush cannot send the next boot does."""
        if self._status is not None and self._reporter is not None:
            await self._status.goodbye()
            await self._reporter.flush()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            self.live.tick(self._clock.monotonic())

    async def _forget(self) -> None:
        while True:
            self.spool.outbox.kept.expire(self._clock.wall())
            # Of whom nobody will hear again: our own report tells what was lost with them.
            async with self._looking:
                self.spool.dropped.update(
                    await asyncio.to_thread(
                        forget_oldest, self._spools, self._config.gateway.name, self._bounds.disk
                    )
                )
            await self._clock.sleep(FORGET_EVERY_S)

    async def _adopt(self, sender_of: Callable[[Adopted], Sender]) -> None:
        """Look for dead workers' spools now and then, and send what they left."""
        senders: dict[UUID, Sender] = {}
        while True:
            async with self._looking:
                found = await asyncio.to_thread(self._find_dead)
            self._adopted += found
            for adopted in list(self._adopted):
                box = adopted.outbox
                # The first time in any case: what was restored while no worker ran is found so.
                if self._epoch:
                    box.ask(self._epoch, always=box.identity.instance not in self._asked)
                    self._asked.add(box.identity.instance)
                sender = senders.setdefault(box.identity.instance, sender_of(adopted))
                await sender.send_all()
                if len(box):
                    continue  # it fails, or is held: the others have their turn
                del senders[box.identity.instance]
                self._adopted.remove(adopted)
                # What was lost of it stays lost after it is gone.
                self.spool.dropped.update(box.dropped)
                adopted.finish()
            await self._clock.sleep(ADOPT_EVERY_S)

    def _epoch_heard(self, epoch: str) -> None:
        self._epoch = epoch
        if self._reporter is not None:
            self._reporter.heard(epoch)

    def _find_dead(self) -> list[Adopted]:
        name = self._config.gateway.name
        return list(adopt(self._spools, name, self._bounds, self._clock.wall()))

    def _spool_status(self) -> SpoolStatus:
        own = self.spool.status()
        boxes = [adopted.outbox for adopted in self._adopted]
        oldest = [box.oldest_at for box in boxes if box.oldest_at] + (
            [own.oldest_at] if own.oldest_at else []
        )
        dropped = sum((box.dropped for box in boxes), self.spool.dropped)
        return SpoolStatus(
            events=own.events + sum(box.events for box in boxes),
            bytes=own.bytes + sum(box.size for box in boxes),
            oldest_at=min(oldest, default=None),
            dropped=dropped.total(),
            dropped_by_kind=dict(dropped),
            acknowledged=self.spool.outbox.kept.highest(
                self.live.in_force.epoch, self._clock.wall()
            ),
        )

    def _start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        async def keep() -> None:
            while True:
                try:
                    await run()
                except NoAnswer as error:
                    log.warning("%s: %s", name, error)
                except Exception:
                    log.exception("%s failed and is started again", name)
                await self._clock.sleep(AGAIN_S)

        self._tasks.append(asyncio.create_task(keep(), name=f"switchgear {name}"))
