"""The code of each released version, unpacked once for all tests of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from .released import VERSIONS, code_of


@pytest.fixture(scope="module", params=VERSIONS)
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a released version; each test runs once for each of them."""
    return code_of(request.param, tmp_path_factory.mktemp("released"))
