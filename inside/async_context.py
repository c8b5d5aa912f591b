"""`async with` for what starts and stops in processes of its own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Self


class AsyncContext(ABC):
    """A base of context managers: `async with` is `with` on a thread, so the event loop goes on."""

    @abstractmethod
    def start(self) -> Self:
        """Start it, and wait until it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it. Harmless when it was not started."""

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        """A start that is cancelled ends what it has started."""
        started = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            await asyncio.wait([started])
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)
