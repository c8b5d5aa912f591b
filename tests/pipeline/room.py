"""Changes of a fenced writer (`Files.room`), on any file system."""

from __future__ import annotations

from functools import partial

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.files import Files


def fenced_writer_changes_nothing(files: Files) -> None:
    """Writes, creates and deletes work while the writer's room exists; all fail after another writer has removed it."""
    files.make("room")
    files.room = "room"
    files.write("x", "1")
    files.write("x", "2")
    assert files.create("y", "1")
    assert not files.create("y", "2")
    files.take_away("y")
    files.take_away("y")
    assert (files.exists("y"), files.read("x"), list(files.names("room"))) == (False, "2", [])
    files.delete("room")
    for change in (partial(files.write, "x", "3"), partial(files.create, "y", "3"), partial(files.take_away, "x")):
        with pytest.raises(PipelineError):
            change()
    assert (files.exists("y"), files.read("x"), files.exists("room")) == (False, "2", False)
