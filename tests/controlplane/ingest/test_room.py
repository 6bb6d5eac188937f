"""Room for bytes is never given twice, and waiting for it is fair and bounded."""

import asyncio

import pytest

from controlplane.api.hot.room import Room
from controlplane.errors import Busy


async def test_it_is_given_in_the_order_of_coming() -> None:
    room, order = Room(10), list[str]()

    async def visit(name: str, size: int) -> None:
        async with room.taken(size, wait_s=5):
            order.append(name)
            await asyncio.sleep(0)

    async with room.taken(8, wait_s=5):
        waiting = [asyncio.create_task(visit(n, s)) for n, s in (("large", 9), ("small", 1))]
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == ["large", "small"]


async def test_who_gives_up_leaves_nothing_taken() -> None:
    room = Room(10)
    async with room.taken(10, wait_s=5):
        with pytest.raises(Busy):
            async with room.taken(1, wait_s=0.001):
                pass
        cancelled = asyncio.create_task(room.taken(1, wait_s=5).__aenter__())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    async with room.taken(10, wait_s=0.001):
        pass


async def test_more_than_the_whole_is_the_whole() -> None:
    async with Room(10).taken(1000, wait_s=0.001):
        pass
