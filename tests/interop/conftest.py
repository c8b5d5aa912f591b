"""Shared by tests of adoption: it takes long to fill a directory with Apache Kafka."""

from __future__ import annotations

import pytest

from . import adopting
from .adopting import Filled


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return adopting.filled("3.9.1", tmp_path_factory.mktemp("apache"))
