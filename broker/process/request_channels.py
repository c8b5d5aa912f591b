"""The channels on which other processes send an owner (the coordinator, the controller) requests, and get its answers.

A request is begun, then answered once; answers for a process that has ended meanwhile are dropped. At its end the owner
finishes what it has begun, and the senders keep the rest for its successor (broker.process.open_requests).
Owner: the process, in its own memory; its loop calls all of this.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Collection
from pathlib import Path

from odradek.broker.process.open_requests import OpenRequests
from odradek.ipc import channel, forward
from odradek.ipc.channel import Channel
from odradek.ipc.forward import Forwarded

_ENDED = select.EPOLLHUP | select.EPOLLERR


class RequestChannels:
    """The socket at `path` and all channels to it, registered with `epoll`. `serve` gets each request and its channel.

    `repeatable`: the keys of APIs that may be executed again (OpenRequests).
    """

    def __init__(
        self,
        epoll: select.epoll,
        path: Path,
        serve: Callable[[Channel, Forwarded], None],
        repeatable: Collection[int] = (),
    ) -> None:
        self._epoll = epoll
        self._serve = serve
        self._door = channel.Listener(path)
        self._channels: dict[int, Channel] = {}
        self._writing: set[int] = set()  # descriptors polled for writability
        self._open = OpenRequests(repeatable)
        self._reads = True
        self.is_open = False  # whether channels are admitted

    def __len__(self) -> int:
        return len(self._channels)

    def open(self) -> None:
        """Admit channels from now on. They wait until then."""
        self._epoll.register(self._door.fileno(), select.EPOLLIN)
        self.is_open = True

    def owns(self, fd: int) -> bool:
        """Whether events of this descriptor are for this object."""
        return fd in self._channels or fd == self._door.fileno()

    def event(self, fd: int, what: int) -> None:
        """Take what a descriptor has: new channels, requests, or the end of a process."""
        if fd in self._channels:
            self._receive(fd, what)
        else:
            self._admit()

    def begin(self, link: Channel, request: Forwarded) -> None:
        """The owner begins a request: the end waits for its answer."""
        self._open.taken(link, request.token, request.api_key)

    def answer(self, link: Channel, request: Forwarded, flags: int, body: bytes) -> None:
        """Answer it, unless its process has ended."""
        if self._channels.get(link.fileno()) is link:
            self._open.answered(link, request.token)
            link.send(forward.encode_reply(request.token, body, flags))

    def flush(self) -> None:
        """Send what the sockets did not accept at once."""
        for fd, link in self._channels.items():
            if link.wants_write:
                link.flush()
            if link.wants_write != (fd in self._writing):
                self._writing ^= {fd}
                self._epoll.modify(fd, self._interest(fd))

    def finish(self) -> None:
        """Take no more requests. Those that were begun can be answered while `finishing`."""
        self._admit()
        self._reads = False
        if self.is_open:
            self._epoll.unregister(self._door.fileno())
        for fd in self._channels:
            self._epoll.modify(fd, self._interest(fd))
        self._open.finish()

    @property
    def finishing(self) -> bool:
        """Whether requests that were begun have no answer yet, and there is time."""
        return self._open.finishing

    def end(self) -> None:
        """Tell all that nothing follows, those that have just connected, too."""
        self._admit()
        self._open.end(self._channels.values())

    def close(self) -> None:
        """Close all of them."""
        for link in self._channels.values():
            link.close()
        self._door.close()

    def _interest(self, fd: int) -> int:
        return (select.EPOLLIN if self._reads else 0) | (select.EPOLLOUT if fd in self._writing else 0)

    def _admit(self) -> None:
        while (link := self._door.accept()) is not None:
            self._channels[link.fileno()] = link
            self._epoll.register(link.fileno(), self._interest(link.fileno()))

    def _receive(self, fd: int, what: int) -> None:
        if not self._reads and not what & _ENDED:
            return
        link = self._channels[fd]
        try:
            messages = link.receive()
        except EOFError:
            self._drop(fd, link)
            return
        for message in messages if self._reads else ():
            self._serve(link, forward.decode(message))

    def _drop(self, fd: int, link: Channel) -> None:
        """Its process has ended."""
        self._epoll.unregister(fd)
        self._writing.discard(fd)
        del self._channels[fd]
        self._open.gone(link)
        link.close()
