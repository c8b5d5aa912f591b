"""Message channels between two processes: SOCK_SEQPACKET pairs with whole messages, descriptors, and EOF at death.

Layout    : each packet is one flag byte (1: the message's last fragment, 0: more follow) and up to 64 KiB of it.
Owner     : the serving process binds `<name>.sock` in the run directory (after it holds its role byte).
Writers   : both ends.
Lock      : none; each end is used by one process.
Descriptors: in the order of their messages. LOST takes the place of a descriptor that this process had no room for, so
            that no message gets the descriptor of another: a client's identity and its listener depend on that.
Crash rule: a dead peer raises EOFError at the receive after its last message, also when it died with messages unread
            (then the kernel says ECONNRESET first), and send swallows the ConnectionError; the caller then has to
            answer everything that was in flight on the channel.
"""

from __future__ import annotations

import array
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

log = logging.getLogger(__name__)

FRAGMENT = 65536
LOST = -1
_MAX_FDS = 16
_PASSES = (errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)  # temporary: the packet may go through later
_MORE, _LAST = b"\x00", b"\x01"


class Channel:
    """One end. Never blocks: `send` queues what the socket does not take; `wants_write` says to poll for it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._out: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._partial: list[bytes] = []
        self._was_reset = False
        self._fds: deque[int] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether packets wait for room; poll for writability and call `flush`."""
        return bool(self._out)

    def send(self, payload: bytes, fds: Sequence[int] = ()) -> None:
        """Queue a message; `fds` travel with its last fragment and may be closed once `wants_write` is False."""
        view = memoryview(payload)
        last = max(0, len(view) - 1) // FRAGMENT * FRAGMENT
        for start in range(0, last, FRAGMENT):
            self._out.append((_MORE + bytes(view[start : start + FRAGMENT]), ()))
        self._out.append((_LAST + bytes(view[last:]), tuple(fds)))
        self.flush()

    def flush(self) -> None:
        """Send the queued packets, as far as the socket takes them."""
        while self._out:
            packet, fds = self._out[0]
            try:
                self._send_packet(packet, fds)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _PASSES:
                    self._end()
                return
            self._out.popleft()

    def _end(self) -> None:
        """Shut down: the peer is gone or unreachable, and `receive` raises EOFError on both sides. The caller answers
        lost messages."""
        self._out.clear()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send_packet(self, packet: bytes, fds: tuple[int, ...]) -> None:
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self._socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)
        else:
            self._socket.send(packet, socket.MSG_NOSIGNAL)

    def receive(self) -> list[bytes]:
        """All complete messages received, [] when none; EOFError when the peer is gone and all is read."""
        messages: list[bytes] = []
        while True:
            try:
                packet = self._receive_packet()
            except (BlockingIOError, InterruptedError):
                return messages
            except ConnectionError:
                if not self._was_reset:  # it ended without reading all; what it sent before is still to be read
                    self._was_reset = True
                    continue
                packet = b""
            if not packet:
                if messages:
                    return messages
                raise EOFError("the other process is gone")
            self._partial.append(packet[1:])
            if packet[:1] == _LAST:
                messages.append(b"".join(self._partial))
                self._partial.clear()

    def _receive_packet(self) -> bytes:
        size = socket.CMSG_SPACE(_MAX_FDS * 4)
        packet, ancillary, flags, _ = self._socket.recvmsg(FRAGMENT + 1, size, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array.array("i", data[: len(data) // 4 * 4]))
        if flags & socket.MSG_CTRUNC:
            self._fds.append(LOST)
            log.error("lost descriptors in a handoff: this process has no free file descriptors (ulimit -n)")
        return packet

    def take_fds(self) -> list[int]:
        """The descriptors received so far, LOST for each lost one; the caller owns them."""
        fds = list(self._fds)
        self._fds.clear()
        return fds

    def close(self) -> None:
        """Close this end and any descriptor not taken."""
        for fd in self.take_fds():
            if fd != LOST:
                os.close(fd)
        self._socket.close()


class Listener:
    """The serving end of a named channel."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        self._socket.bind(os.fspath(path))
        self._socket.listen(128)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Channel | None:
        """The next process that connected, or None."""
        try:
            sock, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        return Channel(sock)

    def close(self) -> None:
        self._socket.close()


def connect(path: str | os.PathLike[str]) -> Channel:
    """Connect to a listener; OSError (FileNotFoundError, ConnectionRefusedError) when no process listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        sock.connect(os.fspath(path))
    except BaseException:
        sock.close()
        raise
    return Channel(sock)
