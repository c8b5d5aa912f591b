"""Resolves host names without waiting for them: a name server that does not answer must not block the loop."""

from __future__ import annotations

import os
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Addresses = list[tuple[Any, Any, int, str, Any]]  # as socket.getaddrinfo has them


class Resolver:
    """Poll `fileno()`, `drain()`, and `resolve` again: a result may be known now. Lookups share one thread."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lookups: dict[tuple[str, int], Future[Addresses]] = {}

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """Made with the first name, which most brokers in tests never have."""
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(1, "resolver")

    def fileno(self) -> int:
        """Readable when a lookup has ended."""
        return self._event

    def drain(self) -> None:
        """Call before asking again."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass

    def resolve(self, host: str, port: int) -> Addresses | None:
        """The addresses of a host, looked up again each time; None: not known yet. Raises OSError when it has none."""
        future = self._lookups.get((host, port))
        if future is None:
            try:
                return _look_up(host, port, socket.AI_NUMERICHOST)
            except socket.gaierror:
                self._lookups[(host, port)] = future = self._pool.submit(_look_up, host, port)
                future.add_done_callback(self._notify)
        if not future.done():
            return None
        del self._lookups[(host, port)]
        return future.result()

    def _notify(self, _: Future[Addresses]) -> None:
        if self._event >= 0:
            os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Close without waiting for lookups."""
        event, self._event = self._event, -1
        if "_pool" in vars(self):
            self._pool.shutdown(wait=False, cancel_futures=True)
        os.close(event)


def _look_up(host: str, port: int, flags: int = 0) -> Addresses:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (ValueError, OverflowError) as error:  # a NUL, a label of 64 characters, an impossible port
        raise OSError(f"{host!r}:{port} is not an address: {error}") from error
