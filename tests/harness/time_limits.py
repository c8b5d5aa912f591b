"""The time limit of a test that failed counts for its teardown too, and for each finalizer that comes after a late one.

pytest-timeout takes the limit away as soon as a test fails, in time or not. A teardown that waits for what such a test
left behind would then wait for ever, and a run without an end names no test.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

_SETTINGS = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note what pytest-timeout sets: None leaves that to it."""
    item.stash[_SETTINGS] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Begin the limit again, unless it is of the function alone, or there is none."""
    settings = item.stash.get(_SETTINGS, None)
    if settings is not None and not settings.func_only:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
        if signal.getitimer(signal.ITIMER_REAL)[0]:  # not with --timeout-method=thread, which ends the process
            signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
