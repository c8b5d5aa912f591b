"""Shared memory of a test's own, gone afterwards whatever happens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from odradek.ipc import memory_order, region
from odradek.ipc.shm import Shared


@pytest.fixture
def prefix() -> Iterator[str]:
    """A prefix of its own for region names."""
    name = f"/odradek-test{secrets.token_hex(4)}-"
    yield name
    region.unlink_all(name)


@pytest.fixture
def shared(prefix: str) -> Shared:
    """The fixed regions of a broker that does not run."""
    return Shared.create(prefix, 7, 16)


@pytest.fixture(params=["tso", "fenced"])
def any_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Go the way of a machine that keeps stores in order, and of one that does not; name it before `shared`."""
    if request.param == "fenced":
        monkeypatch.setattr(memory_order, "TSO", False)
        memory_order.register()  # what is forked is registered too: membarrier(2)
    return str(request.param)
