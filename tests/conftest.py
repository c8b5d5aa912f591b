"""Fixtures that start real brokers, and the `needs` marker."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from .harness import java, live, long_report, time_limits
from .harness.broker import Broker, ExternalBroker
from .harness.descriptors import assert_few_left, descriptors
from .harness.loadfile import pytest_xdist_make_scheduler  # noqa: F401
from .harness.log_records import pytest_runtest_teardown  # noqa: F401
from .harness.needs import missing, skip
from .harness.skips import pytest_terminal_summary  # noqa: F401

collect_ignore = ["samples"]  # projects of their own; tests/house/test_packaging.py runs their tests

# No example has to be done in a certain time. All else is as hypothesis has it for this place, in CI or elsewhere.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our own options."""
    long_report.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python's own way of loading its schemas is none of ours. Drivers of Spark start as all Java here."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java.spark_options())
    config.pluginmanager.register(time_limits)
    config.pluginmanager.register(live)
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    long_report.register(config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, what needs a tool that is not here."""
    for marker in item.iter_markers("needs"):
        for tool in marker.args:
            if why := missing(tool):
                skip(why)


def pytest_collection_finish() -> None:
    """What is imported by now lives for ever: without it a full collection is quick, and so comes often.

    Brokers' parts within the tests' process refer to each other, so their descriptors go when they are collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def few_descriptors_left() -> Iterator[None]:
    """The tests of a module close what they open. What is left of modules before it lives on: none need scan it."""
    gc.freeze()
    before = descriptors()
    yield
    assert_few_left(before)


def _external() -> str | None:
    return os.environ.get("ODRADEK_TEST_BOOTSTRAP") or None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | ExternalBroker]:
    """One broker of two workers for a module of tests; or the one at `ODRADEK_TEST_BOOTSTRAP`."""
    bootstrap = _external()
    if bootstrap:
        yield ExternalBroker(bootstrap)
        return
    running = Broker(tmp_path_factory.mktemp("broker"))
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for the run directories of a test's brokers, as their TMPDIR. Its path is short, as sockets need.

    Each start removes what dead brokers left whose run directories are in the same place: tests that look at that, or
    make it, need a place that no other test's brokers have.
    """
    made = Path(tempfile.mkdtemp(prefix="odl-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def fresh_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Broker]]:
    """`fresh_broker(num_partitions=3, …)` starts a broker for this test alone (`_` stands for `.`).

    `start=False` only makes it. All are stopped at the end, which asserts that nothing is left behind.
    """
    if _external():
        pytest.skip("wants a broker of its own; ODRADEK_TEST_BOOTSTRAP is set")
    made: list[Broker] = []

    def make(*, start: bool = True, **overrides: Any) -> Broker:
        made.append(Broker(tmp_path_factory.mktemp("fresh"), **overrides))
        return made[-1].start() if start else made[-1]

    try:
        yield make
    finally:
        for one in reversed(made):
            one.close()
