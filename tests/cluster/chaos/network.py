"""A separate network for a test: a hub, with ZooKeeper and the clients, and a host for each broker.

Each is a network namespace that a sleeping process holds, so all of it ends with the test, however that ends, and
concurrent tests may use the same addresses. A bridge in the hub connects the hosts. nftables in a host's own
namespace drops the packets of a cut; a token bucket slows a link.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ...harness.needs import missing, skip
from ...harness.process import die_with_parent

HUB = "10.71.0.1"
_CLONE_NEWNET = 0x40000000
_RULES = """
table inet chaos {
    chain out { type filter hook output priority 0; }
    chain in { type filter hook input priority 0; }
}
"""
_libc = ctypes.CDLL(None, use_errno=True)


class _Holder:
    """Holds a namespace until it is closed."""

    def __init__(self) -> None:
        words = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
        )
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().decode().strip()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def prefix(self) -> list[str]:
        """The prefix of a command that runs in the namespace."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def run(self, *words: str, given: str = "") -> None:
        """Run a command in the namespace; AssertionError with its error output if it fails."""
        done = subprocess.run([*self.prefix, *words], input=given, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Network:
    """A hub and `hosts` hosts, to be closed. The test is skipped if the kernel allows no namespaces."""

    def __init__(self, hosts: int) -> None:
        for tool in ("ip", "nft"):
            if why := missing(tool):
                skip(why)
        self._hub = _Holder()
        self._hosts = [_Holder() for _ in range(hosts)]
        try:
            self._wire()
        except (AssertionError, OSError) as error:
            self.close()
            skip(f"this machine allows no network namespaces: {self._hub.said}, {error}")

    def _wire(self) -> None:
        self._hub.run("ip", "link", "add", "bridge", "type", "bridge")
        self._hub.run("ip", "addr", "add", f"{HUB}/24", "dev", "bridge")
        self._hub.run("ip", "link", "set", "bridge", "up")
        for number, host in enumerate(self._hosts):
            link = ["ip", "link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns"]
            self._hub.run(*link, str(host.pid))
            self._hub.run("ip", "link", "set", f"host{number}", "master", "bridge", "up")
            host.run("ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.run("nft", "-f", "-", given=_RULES)

    def close(self) -> None:
        """End the holders; each namespace ends with its last process."""
        for holder in [*self._hosts, self._hub]:
            holder.close()

    def address(self, host: int) -> str:
        """The IPv4 address of a host."""
        return f"10.71.0.{10 + host}"

    def prefix(self, host: int) -> list[str]:
        """The prefix of a command that runs on a host."""
        return self._hosts[host].prefix

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run this thread, and threads and processes that it starts, in the hub."""
        with _within(self._hub.pid):
            yield

    @contextmanager
    def at(self, host: int) -> Iterator[None]:
        """Run this thread, and threads and processes that it starts, on a host."""
        with _within(self._hosts[host].pid):
            yield

    # -- faults

    @contextmanager
    def cut(self, host: int, *addresses: str, ways: tuple[str, ...] = ("out", "in")) -> Iterator[None]:
        """Drop packets from the host to these addresses ("out") or from them to it ("in"), without an error."""
        named = "{ " + ", ".join(addresses) + " }"
        rules = {"out": f"out ip daddr {named} drop", "in": f"in ip saddr {named} drop"}
        with self._ruled(host, *(rules[way] for way in ways)):
            yield

    @contextmanager
    def lossy(self, host: int, percent: int) -> Iterator[None]:
        """Drop `percent` of packets in each direction."""
        rule = f"meta oif != lo numgen random mod 100 < {percent} drop"
        with self._ruled(host, f"out {rule}", f"in {rule.replace('oif', 'iif')}"):
            yield

    @contextmanager
    def slow(self, host: int, kilobits: int) -> Iterator[None]:
        """Limit each direction to `kilobits` a second, so that packets queue."""
        bucket = ["root", "tbf", "rate", f"{kilobits}kbit", "burst", "8kb", "latency", "2s"]
        ends = [(self._hosts[host], "eth0"), (self._hub, f"host{host}")]
        for holder, device in ends:
            holder.run("tc", "qdisc", "add", "dev", device, *bucket)
        try:
            yield
        finally:
            for holder, device in ends:
                holder.run("tc", "qdisc", "del", "dev", device, "root")

    @contextmanager
    def _ruled(self, host: int, *rules: str) -> Iterator[None]:
        """Apply rules within the block. A host has one block at a time, since its end removes all rules."""
        for rule in rules:
            self._hosts[host].run("nft", f"add rule inet chaos {rule}")
        try:
            yield
        finally:
            self._hosts[host].run("nft", "flush table inet chaos")


@contextmanager
def _within(pid: int) -> Iterator[None]:
    """Run this thread in the network namespace of a process."""
    home, other = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _set(other)
        yield
    finally:
        _set(home)
        os.close(home)
        os.close(other)


def _set(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
