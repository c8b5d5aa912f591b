"""Whether the machine has rebooted: only the id of another boot proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.storage.dirs import boot_id


def test_boot_note_of_this_boot_and_of_another(tmp_path: Path) -> None:
    assert not boot_id.restarted_since(tmp_path)
    boot_id.record_boot(tmp_path)
    assert not boot_id.restarted_since(tmp_path)
    (tmp_path / boot_id.FILE_NAME).write_text("another\n")
    assert boot_id.restarted_since(tmp_path)
    boot_id.record_boot(tmp_path)
    assert not boot_id.restarted_since(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_invalid_boot_note_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / boot_id.FILE_NAME).write_bytes(content)
    assert not boot_id.restarted_since(tmp_path)


def test_kernel_without_a_boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id.record_boot(tmp_path)
    monkeypatch.setattr(boot_id, "_KERNEL", str(tmp_path / "none"))
    assert not boot_id.restarted_since(tmp_path)
    boot_id.record_boot(tmp_path)
    assert (tmp_path / boot_id.FILE_NAME).read_text().strip()
