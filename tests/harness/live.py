"""Live tests (`pytest.mark.live`) start programs: brokers, ZooKeeper, clients, JVMs. Any other test that does so fails.

This keeps `make test` quick, which runs only one live test of each kind (`pytest.mark.smoke`). Exhaustive tests
(`pytest.mark.long`), which it leaves out anyway, need no other mark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_STARTS = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"}
"""Audit events. A test may fork: a copy of a small process takes a millisecond."""
_refused = ""  # the running test, if it must not start programs


def _audit(event: str, args: tuple[object, ...]) -> None:
    if _refused and event in _STARTS:
        raise RuntimeError(f"{_refused} starts {args[0]}: mark it with pytest.mark.live")


def pytest_configure() -> None:
    """Audit hooks stay until the process ends."""
    sys.addaudithook(_audit)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Refuse programs from a test's setup to its teardown, unless the test is live."""
    global _refused
    _refused = "" if any(item.get_closest_marker(name) for name in ("live", "long")) else item.nodeid
    try:
        return (yield)
    finally:
        _refused = ""
