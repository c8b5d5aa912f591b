"""Deleting the segments below a log start, and dying on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.storage.files import names
from odradek.storage.log import trim


@pytest.mark.parametrize("renames", range(5))
def test_of_a_log_that_is_found_again_the_aborted_transactions_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Who deletes a segment dies after so many renames, and the log start that said so is lost with the machine."""
    for base in (0, 10):
        for kind in names.SEGMENT_SUFFIXES:
            Path(names.segment_path(tmp_path, base, kind)).touch()
    left, rename = iter(range(renames)), os.rename

    def dying(source: str, target: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", dying)
        trim.rename_below(str(tmp_path), [0, 10], 10)
    found = {name for name in os.listdir(tmp_path) if name.startswith(names.offset_name(0))}
    if names.offset_name(0) + names.LOG in found:
        assert names.offset_name(0) + names.TXN_INDEX in found
