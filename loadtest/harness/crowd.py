"""Connections without requests: python -m odradek.loadtest.harness.crowd handshakes|silent HOST:PORT CA NUMBER.

`handshakes` makes NUMBER TLS connections a second and closes each one; `silent` keeps NUMBER connections open and sends
nothing. Prints a line when it is at work, and goes on until it is killed.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import sys
import time

Address = tuple[str, int]


def handshakes(address: Address, ca: str, a_second: int) -> None:
    """One after the other, at fixed times."""
    context = ssl.create_default_context(cafile=ca)
    print("at work", flush=True)
    due = time.monotonic()
    while True:
        with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=address[0]):
            pass
        due += 1 / a_second
        time.sleep(max(0.0, due - time.monotonic()))


def silent(address: Address, number: int) -> None:
    """A connection that the broker closes is opened again."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    poll = select.epoll()
    found: dict[int, socket.socket] = {}
    while True:
        while len(found) < number:
            one = socket.create_connection(address)
            found[one.fileno()] = one
            poll.register(one, select.EPOLLRDHUP)
        print("at work", flush=True)
        for fd, _ in poll.poll():
            found.pop(fd).close()


def main() -> None:
    """See above."""
    mode, bootstrap, ca, number = sys.argv[1:]
    host, port = bootstrap.rsplit(":", 1)
    if mode == "handshakes":
        handshakes((host, int(port)), ca, int(number))
    else:
        silent((host, int(port)), int(number))


if __name__ == "__main__":
    main()
