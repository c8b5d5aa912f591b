"""One booted systemd for a module of tests, with the broker started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .machine import Machine, started


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with started(tmp_path_factory.mktemp("machine")) as booted:
        yield booted
