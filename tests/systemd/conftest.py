"""One booted systemd for a module of tests, with the broker started."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ..harness.needs import must_not_skip
from .machine import Machine, why_not


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Booted, and `systemctl start odradek.target` returned. Skips loudly where no systemd can be booted."""
    why = why_not()
    if why and must_not_skip() and os.geteuid() == 0:
        pytest.fail(why, pytrace=False)
    if why:
        pytest.skip(why)
    booted = Machine(tmp_path_factory.mktemp("machine"))
    try:
        booted.boot()
        booted.systemctl("start", "odradek.target")
        yield booted
    finally:
        booted.close()
