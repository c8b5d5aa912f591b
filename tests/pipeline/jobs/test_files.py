"""Files on Hadoop's file systems: the local one, and one that only Hadoop can reach (`viewfs`)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import files as jobs_files
from odradek.pipeline.jobs.files import Files, make_once, rename_new

from ...harness.process import free_port
from ..room import fenced_writer_changes_nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


@pytest.fixture(params=["file", "viewfs"])
def files(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Files:
    """Files in the folder `a b` of `tmp_path`."""
    if request.param == "file":
        return Files(spark, str(tmp_path / "a b"))
    table = f"t{uuid4().hex}"
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./here", tmp_path.as_uri())
    return Files(spark, f"viewfs://{table}/here/a b")


def test_a_file_is_written_read_replaced_and_deleted(files: Files) -> None:
    assert not files.exists("x/y.json")
    files.write("x/y.json", "grün\n")
    files.write("x/y.json", "grün\r\nund neu")
    assert (files.read("x/y.json"), files.exists("x"), files.exists("")) == ("grün\r\nund neu", True, True)
    files.delete("x/y.json")
    files.delete("x/y.json")
    assert (files.exists("x/y.json"), files.exists("x")) == (False, True)
    files.write("x/z", "")
    files.delete("x")
    assert not files.exists("x")


def test_file_is_created_once(files: Files) -> None:
    assert files.create("x/lease", "mine")
    assert not files.create("x/lease", "yours")
    assert files.read("x/lease") == "mine"


@pytest.mark.parametrize("make", [make_once, rename_new])
def test_file_is_created_once_with_and_without_links(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    new, there = tmp_path / "new", tmp_path / "there"
    new.write_text("new")
    make(new, there)
    assert there.read_text() == "new"
    (tmp_path / "newer").write_text("newer")
    with pytest.raises(FileExistsError) as raised:
        make(tmp_path / "newer", there)
    assert raised.value.filename2 == str(there)
    assert there.read_text() == "new"


def _no_link(*_: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("renames", [True, False], ids=["exclusive rename", "no exclusive rename"])
def test_file_is_created_once_on_file_systems_without_links(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """Such as vfat, CIFS and many FUSE file systems."""
    monkeypatch.setattr(os, "link", _no_link)
    if not renames:
        monkeypatch.setattr(jobs_files, "_renamed_new", lambda *_: errno.EINVAL)
    files = Files(spark, str(tmp_path))
    assert files.create("x/lease", "mine")
    assert not files.create("x/lease", "yours")
    assert files.read("x/lease") == "mine"
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["lease"]


def test_fenced_writer_changes_nothing(files: Files) -> None:
    """The writer that removes the room relies on this."""
    fenced_writer_changes_nothing(files)


def test_one_of_many_concurrent_creates_succeeds(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            made = list(pool.map(lambda who, at=number: files.create(f"{at}", f"{who}"), range(8)))
            assert made.count(True) == 1
            assert files.read(f"{number}") == str(made.index(True))


def test_files_are_listed_recursively(files: Files) -> None:
    """With paths relative to the root, without temporary files."""
    for path in ("x/topic=a/date=1/b c%20.parquet", "x/y", "z"):
        files.write(path, "12345")
    files.write("x/.hidden", "")
    files.make("x/empty")
    assert [(entry.path, entry.size) for entry in files.list("x")] == [
        ("x/topic=a/date=1/b c%20.parquet", 5),
        ("x/y", 5),
    ]
    assert [entry.path for entry in files.list()] == ["x/topic=a/date=1/b c%20.parquet", "x/y", "z"]
    assert files.list("nix") == []
    assert files.list("z")[0].modified_ms > 1_600_000_000_000


def test_rename_creates_the_target_folder(files: Files) -> None:
    files.write("a/b", "1")
    files.rename("a/b", "c/d/e")
    assert (files.exists("a/b"), files.read("c/d/e")) == (False, "1")
    with pytest.raises(PipelineError, match="a/b"):
        files.rename("a/b", "c/d/f")


def test_sync_of_a_missing_file_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    files.write("a/b", "1")
    files.sync(["a/b"])
    with pytest.raises(PipelineError, match="a/c: No such file"):
        files.sync(["a/b", "a/c"])


def test_new_folders_are_synced(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once; otherwise a power failure could lose a folder with its synced files."""
    flushed: list[str] = []
    flush = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    files = Files(spark, str(tmp_path / "new"))
    files.write("x/y/a", "1")
    assert [name for name in flushed if "." not in name[1:]] == [".", "new", "new/x", "new/x/y"]
    flushed.clear()
    files.rename("x/y/a", "topic=t/date=1/hour=2/a")
    assert flushed == ["new", "new/topic=t", "new/topic=t/date=1"]
    flushed.clear()
    files.make("topic=t/date=1/hour=3")
    assert flushed == ["new/topic=t/date=1"]


def test_no_temporary_file_is_left(files: Files, tmp_path: Path) -> None:
    files.check_writable()
    files.write("x", "1")
    files.write("x", "2")
    files.create("x", "3")
    left = [path.name for path in (tmp_path / "a b").iterdir()]
    assert [name for name in left if not name.endswith(".crc")] == ["x"]


def test_error_of_a_missing_file_has_its_uri(files: Files) -> None:
    with pytest.raises(PipelineError, match=r"a b/nix: .*(does not exist|not found)"):
        files.read("nix")
    assert files.uri("x") == f"{files.root}/x"


def _file_in_the_way(folder: Path) -> str:
    (folder / "x").touch()
    return str(folder / "x/archive")


@pytest.mark.parametrize(
    ("root", "line"),
    [
        (_file_in_the_way, r"^file:.*x/archive: cannot write .*: Not a directory$"),
        (lambda _: "/proc/archive", r"^file:/proc/archive: cannot write .*: No such file or directory$"),
        (lambda _: "nix://x/y", r'^nix://x/y: No FileSystem for scheme "nix"$'),
        (lambda _: f"hdfs://127.0.0.1:{free_port()}/x", r"^hdfs://127.0.0.1:\d+/x.*: .*Connection refused[^\n]*$"),
        (lambda _: "a:b:c", r"^a:b:c: .*$"),
        (lambda _: "", r"^.*: Can not create a Path from an empty string$"),
    ],
)
def test_unwritable_folder_is_a_one_line_error(
    spark: SparkSession, tmp_path: Path, root: Callable[[Path], str], line: str
) -> None:
    with pytest.raises(PipelineError, match=line):
        Files(spark, root(tmp_path)).check_writable()
