"""File descriptors of this process. A test that leaks some makes a later test fail, far away and rarely."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter

import psutil

from .process import wait_until

MOST_LEFT = 20  # caches, and descriptors that a session shares


def descriptors() -> dict[int, str]:
    """The target of each open descriptor, except Spark's connections to its Java."""
    found, sparks = {}, _sparks()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor of the listing itself, or a thread's
            pass
    return {number: what for number, what in found.items() if number not in sparks}


def _sparks() -> set[int]:
    """Java keeps one for each of its threads that has called Python, a stream's or a task's, and drops them later."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        return set()
    ports = {gateway.java_parameters.port, gateway.python_parameters.port}
    server = gateway.get_callback_server()
    ports |= {server.get_listening_port()} if server else set()
    return {one.fd for one in psutil.Process().net_connections() if {*one.laddr[1:], *one.raddr[1:]} & ports}


def assert_few_left(before: dict[int, str]) -> None:
    """Fail if many more are open than `before`, after garbage collection and the end of clients' threads."""
    gc.collect()
    wait_until(lambda: len(descriptors()) <= len(before) + MOST_LEFT, 30, fail=False)
    now = descriptors()
    if len(now) > len(before) + MOST_LEFT:
        new = Counter(what.split(":[")[0] for number, what in now.items() if before.get(number) != what)
        raise AssertionError(f"{len(now) - len(before)} more descriptors are open than before these tests: {new}")
