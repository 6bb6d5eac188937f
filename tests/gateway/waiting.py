"""Wait for a condition with a deadline, instead of sleeping for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Return as soon as the condition holds; ``TimeoutError`` when it never does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is in another part's state
            await asyncio.sleep(0.005)
