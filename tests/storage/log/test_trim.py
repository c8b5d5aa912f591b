"""Deletion of the segments below a log start, with a death in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.storage.files import names
from odradek.storage.log import trim


@pytest.mark.parametrize("renames", range(5))
def test_remaining_segment_has_its_transaction_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """The process dies after some renames, and the machine loses the log start, so that recovery reads the segment."""
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
