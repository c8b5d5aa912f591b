"""The commands of ZooKeeper's shell that work on nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from odradek.broker.commands.zookeeper_shell.arguments import Line, Malformed, check_path, parsed

_PERMISSIONS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}  # in the order in which ZooKeeper prints them


class NodeCommands:
    """Runs commands with one session. Malformed, and kazoo's exceptions, which concern `path`."""

    def __init__(self, client: KazooClient, seconds: float, on_change: Callable[[Any], None]) -> None:
        self.path = ""
        self._client, self._seconds, self._on_change = client, seconds, on_change
        self._actions: Mapping[str, Callable[[Line], None]] = {
            "addauth": self._addauth, "create": self._create, "delete": self._delete, "deleteall": self._deleteall,
            "get": self._get, "getAcl": self._get_acl, "ls": self._ls, "set": self._set, "stat": self._stat,
        }  # fmt: skip

    def execute(self, words: list[str]) -> None:
        """Run one command and print its result."""
        line = parsed(words)
        if line.warning:
            click.echo(line.warning, err=True)
        self.path = line.rest[0] if words[0] == "addauth" else check_path(line.rest[0])
        self._actions[words[0]](line)

    def _wait(self, result: Any) -> Any:
        return result.get(timeout=self._seconds)

    def _watch(self, line: Line) -> Callable[[Any], None] | None:
        return self._on_change if "-w" in line.options else None

    def _ls(self, line: Line) -> None:
        if "-R" in line.options:
            for path in [self.path, *self._below(self.path)]:
                click.echo(path)
            return
        names, stat = self._wait(self._client.get_children_async(self.path, self._watch(line), include_data=True))
        click.echo(f"[{', '.join(sorted(names))}]")
        self._show_stat(line, stat)

    def _below(self, path: str) -> Iterator[str]:
        """All paths below a node: its children, then what is below each."""
        children = [f"{path.rstrip('/')}/{name}" for name in self._children(path)]
        yield from children
        for child in children:
            yield from self._below(child)

    def _children(self, path: str) -> list[str]:
        """Sorted. NoNodeError for the node of the command; a node below it may go in the meantime."""
        try:
            return sorted(self._wait(self._client.get_children_async(path)))
        except NoNodeError:
            if path == self.path:
                raise
            return []

    def _get(self, line: Line) -> None:
        data, stat = self._wait(self._client.get_async(self.path, self._watch(line)))
        click.echo("null" if data is None else data.decode(errors="replace"))
        self._show_stat(line, stat)

    def _stat(self, line: Line) -> None:
        stat = self._wait(self._client.exists_async(self.path, self._watch(line)))
        if stat is None:
            raise NoNodeError
        _print_stat(stat)

    def _create(self, line: Line) -> None:
        data = line.rest[1].encode() if len(line.rest) > 1 else None
        acl = _acls(line.rest[2]) if len(line.rest) > 2 else list(OPEN_ACL_UNSAFE)
        how = {"ephemeral": "-e" in line.options, "sequence": "-s" in line.options}
        click.echo(f"Created {self._wait(self._client.create_async(self.path, data, acl, **how))}", err=True)

    def _set(self, line: Line) -> None:
        stat = self._wait(self._client.set_async(self.path, line.rest[1].encode(), line.number("-v")))
        self._show_stat(line, stat)

    def _delete(self, line: Line) -> None:
        self._wait(self._client.delete_async(self.path, line.number("-v")))

    def _deleteall(self, line: Line) -> None:
        line.number("-b")  # how many at once: here one after the other
        if self.path == "/":
            raise Malformed("the root and all nodes of ZooKeeper itself cannot be deleted")
        for path in [*reversed([self.path, *self._below(self.path)])]:
            self._wait(self._client.delete_async(path))

    def _get_acl(self, line: Line) -> None:
        acls, stat = self._wait(self._client.get_acls_async(self.path))
        for acl in acls:
            click.echo(f"'{acl.id.scheme},'{acl.id.id}\n: {_permissions(acl.perms)}")
        self._show_stat(line, stat)

    def _addauth(self, line: Line) -> None:
        self._wait(self._client.add_auth_async(line.rest[0], line.rest[1] if len(line.rest) > 1 else ""))

    def _show_stat(self, line: Line, stat: Any) -> None:
        if "-s" in line.options:
            _print_stat(stat)


def _permissions(bits: int) -> str:
    return "".join(letter for letter, bit in _PERMISSIONS.items() if bits & bit)


def _acls(text: str) -> list[ACL]:
    """`scheme:id:perms,…`. Malformed."""
    return [_acl(part) for part in text.split(",")]


def _acl(text: str) -> ACL:
    scheme, _, rest = text.partition(":")
    who, colon, letters = rest.rpartition(":")
    if not colon:
        raise Malformed(f"{text} does not have the form scheme:id:perm")
    return ACL(sum(_bits(letters)), Id(scheme, who))


def _bits(letters: str) -> Iterable[int]:
    for letter in set(letters):
        if letter not in _PERMISSIONS:
            raise Malformed(f"Unknown perm type: {letter}")
        yield _PERMISSIONS[letter]


def _print_stat(stat: Any) -> None:
    """The counters and times of a node, as ZooKeeper's shell prints them."""
    lines = (
        ("cZxid", hex(stat.czxid)), ("ctime", _date(stat.ctime)), ("mZxid", hex(stat.mzxid)),
        ("mtime", _date(stat.mtime)), ("pZxid", hex(stat.pzxid)), ("cversion", stat.cversion),
        ("dataVersion", stat.version), ("aclVersion", stat.aversion),
        ("ephemeralOwner", hex(stat.ephemeralOwner % (1 << 64))), ("dataLength", stat.dataLength),
        ("numChildren", stat.numChildren),
    )  # fmt: skip
    for name, value in lines:
        click.echo(f"{name} = {value}")


def _date(ms: int) -> str:
    """`Sat Nov 28 03:25:56 UTC 2026`, in the local time zone."""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(ms // 1000))
