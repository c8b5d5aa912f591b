"""Shared memory for one test, removed afterwards even if the test fails."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from odradek.ipc import memory_order, region
from odradek.ipc.shm import Shared


@pytest.fixture
def prefix() -> Iterator[str]:
    """A unique prefix for region names."""
    name = f"/odradek-test{secrets.token_hex(4)}-"
    yield name
    region.unlink_all(name)


@pytest.fixture
def shared(prefix: str) -> Shared:
    """The fixed regions of a broker that does not run."""
    return Shared.create(prefix, 7, 16)


@pytest.fixture(params=["tso", "fenced"])
def any_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run as on a machine that keeps stores in order, and as on one that does not; request it before `shared`."""
    if request.param == "fenced":
        monkeypatch.setattr(memory_order, "TSO", False)
        memory_order.register()  # forked children inherit the registration: membarrier(2)
    return str(request.param)
