"""The time limit of a failed test also holds for its teardown, and for each finalizer after a late one.

pytest-timeout removes the limit as soon as a test fails. A teardown that waits for leftovers of such a test would wait
forever, and a run without an end names no test.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

_SETTINGS = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note pytest-timeout's limit: None leaves the timer to pytest-timeout."""
    item.stash[_SETTINGS] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Start the limit again, unless it only covers the test function, or there is none."""
    settings = item.stash.get(_SETTINGS, None)
    if settings is not None and not settings.func_only:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
        if signal.getitimer(signal.ITIMER_REAL)[0]:  # not set with --timeout-method=thread, which ends the process
            signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
