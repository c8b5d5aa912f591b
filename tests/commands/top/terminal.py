"""`odradek top` in a terminal, and what it has drawn there."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyte

from ...harness.broker import Broker
from ...harness.process import die_with_parent, wait_until
from ..conftest import command_line

WIDTH, HEIGHT = 80, 24


class Terminal:
    """A terminal with the screen that the command has drawn."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._screen = pyte.Screen(WIDTH, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._fd, 65536):
                self._stream.feed(data)
        except OSError:  # the command has ended
            pass

    @property
    def lines(self) -> list[str]:
        return list(self._screen.display)

    @property
    def markup(self) -> str:
        """The screen as HTML, with its colours."""
        rows = (self._screen.buffer[number] for number in range(HEIGHT))
        return "<br>".join("".join(_cell(row[column]) for column in range(WIDTH)) for row in rows)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def await_line(self, *words: str) -> str:
        """Wait for a line with all these words."""
        found = lambda: next((one for one in self.lines if all(word in one for word in words)), "")  # noqa: E731
        return str(wait_until(found, 60, f"a line with {words}"))

    def close(self) -> None:
        self._reader.join(30)
        os.close(self._fd)


def _cell(char: pyte.screens.Char) -> str:
    front, back = char.fg.replace("brown", "goldenrod").replace("default", "inherit"), "transparent"
    if char.reverse:
        front, back = "#1e1e1e", "#d4d4d4"
    style = f"color:{front};background:{back};font-weight:{'bold' if char.bold else 'normal'}"
    return f'<span style="{style}">{html.escape(char.data)}</span>'


@contextmanager
def top(broker: Broker) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        command_line("top", str(broker.properties_file), "--interval", "0.5"),
        stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}, preexec_fn=die_with_parent,
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(master)
    try:
        yield terminal, process
    finally:
        process.kill()
        process.wait()
        terminal.close()
