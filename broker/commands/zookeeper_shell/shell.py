"""The loop of `odradek zookeeper-shell`: what it prints is what ZooKeeperMain of ZooKeeper 3.8 prints."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

import click
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent

from odradek.broker.commands._shared.zookeeper import connected
from odradek.broker.commands.zookeeper_shell.arguments import COMMANDS, Malformed, words_of
from odradek.broker.commands.zookeeper_shell.node_commands import NodeCommands
from odradek.broker.errors import FAILED, OK

_UNKNOWN = 127  # the exit code for an unknown command
_SHOWN = 11  # lines that `history` shows, its own among them
_TEXTS: dict[type[Exception], str] = {
    exceptions.NoNodeError: "Node does not exist: {}",
    exceptions.NoChildrenForEphemeralsError: "Ephemerals cannot have children: {}",
    exceptions.NodeExistsError: "Node already exists: {}",
    exceptions.NotEmptyError: "Node not empty: {}",
    exceptions.InvalidACLError: "Acl is not valid : {}",
    exceptions.NoAuthError: "Insufficient permission : {}",
    exceptions.BadArgumentsError: "Arguments are not valid : {}",
    exceptions.BadVersionError: "version No is not valid : {}",
}
_EVENTS = {
    "CREATED": "NodeCreated", "DELETED": "NodeDeleted", "CHANGED": "NodeDataChanged", "CHILD": "NodeChildrenChanged",
}  # fmt: skip


def watched(kind: str, state: str = "SyncConnected", path: str | None = None) -> None:
    """Print an event as ZooKeeper's watcher does."""
    click.echo(f"\nWATCHER::\n\nWatchedEvent state:{state} type:{kind} path:{path or 'null'}")


def _on_change(event: WatchedEvent) -> None:
    """Called by a thread of kazoo."""
    if event.type in _EVENTS:
        watched(_EVENTS[event.type], path=event.path)


class Shell:
    """One session. The constructor connects and prints that it does. OdradekError."""

    def __init__(self, host: str, session_ms: int, config_file: str | None) -> None:
        click.echo(f"Connecting to {host}")
        self._host = host
        self._tree = connected(host, config_file, session_ms, makes_chroot=False)
        self._open = True
        self._nodes = NodeCommands(self._tree.client, session_ms / 1000, _on_change)
        self._history: list[str] = []

    def run(self, words: Sequence[str]) -> int:
        """Run one command, or without one those of standard input; returns the exit code of the last."""
        try:
            if not words:
                return self._run_all()
            watched("None")
            return self._execute(list(words))
        finally:
            self._close()

    def _run_all(self) -> int:
        click.echo("Welcome to ZooKeeper!\nJLine support is disabled")
        watched("None")
        code = OK
        for line in self._lines():
            words = words_of(line)
            if words:
                self._history.append(line)
                if words[0] == "quit":
                    self._close(say=True)
                    break
                code = self._execute(words)
        return code

    def _lines(self) -> Iterator[str]:
        """The lines of standard input, which a terminal lets a user edit."""
        if not sys.stdin.isatty():
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # input() uses it
        with contextlib.suppress(EOFError):
            while True:
                state = "CONNECTED" if self._open and self._tree.client.connected else "CLOSED"
                yield input(f"[zk: {self._host}({state}) {len(self._history)}] ")

    def _execute(self, words: list[str]) -> int:
        """Run a command, print what is wrong with it; returns its exit code."""
        try:
            return self._dispatch(words)
        except Malformed as error:
            click.echo(str(error), err=True)
        except tuple(_TEXTS) as error:
            click.echo(_TEXTS[type(error)].format(self._nodes.path), err=True)
        except (exceptions.KazooException, KazooTimeoutError) as error:
            click.echo(f"{type(error).__name__}: {self._nodes.path} {error}".rstrip(), err=True)
        return FAILED

    def _dispatch(self, words: list[str]) -> int:
        name = words[0]
        if name not in COMMANDS:
            click.echo("ZooKeeper -server host:port [-zk-tls-config-file <file>] cmd args", err=True)
            click.echo("".join(f"\t{usage}\n" for usage in COMMANDS.values()), nl=False, err=True)
            click.echo(f"Command not found: Command not found {name}", err=True)
            return _UNKNOWN
        if name == "history":
            self._show_history()
        elif name in ("close", "quit"):
            self._close(say=True)
        elif not self._open:
            click.echo("Not connected")
        else:
            self._nodes.execute(words)
        return OK

    def _show_history(self) -> None:
        first = max(0, len(self._history) - _SHOWN)
        for number, line in enumerate(self._history[first:], first):
            click.echo(f"{number} - {line}")

    def _close(self, *, say: bool = False) -> None:
        if self._open:
            self._tree.close()
            self._open = False
            if say:
                watched("None", "Closed")
