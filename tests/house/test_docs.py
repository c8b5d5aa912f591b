"""The documents tell the truth about the tree: files exist, commands exist, the API table is the rows."""

from __future__ import annotations

import re

import pytest

from tests.tools.api_table import table, written

from .tree import ROOT

PAGES = ["README.md", "ARCHITECTURE.md"]
JOBS = "pipeline/README.md"
FILE = re.compile(r"`((?:[a-z]+/)+(?:[a-z0-9_]+\.[a-z]+)?|[A-Z]+\.md)`")
LINK = re.compile(r"\]\((?!http)([^)#]+)\)")
TARGET = re.compile(r"make ([a-z-]+)")


@pytest.mark.parametrize("page", [*PAGES, JOBS])
def test_every_file_named_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = FILE.findall(text) + LINK.findall(text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_named_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = TARGET.findall((ROOT / page).read_text())
    assert targets
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_every_command_named_exists() -> None:
    from odradek.broker.cli import odradek

    text = (ROOT / "README.md").read_text()
    known = set(odradek.list_commands(None))  # type: ignore[arg-type]
    named = set(re.findall(r"(?:\.venv/bin/|`)odradek ([a-z][a-z-]+)", text))
    assert named
    assert named <= known


def test_every_option_of_a_job_exists() -> None:
    """But for those of Spark's own programs."""
    from odradek.pipeline.__main__ import pipeline

    text = (ROOT / JOBS).read_text()
    named = set(re.findall(r"`(--[a-z][a-z-]+)", text)) | set(
        re.findall(r"odradek pipeline .*? (--[a-z][a-z-]+)", text)
    )
    jobs = [pipeline.get_command(None, name) for name in pipeline.list_commands(None)]  # type: ignore[arg-type]
    known = {option for job in jobs if job for param in job.params for option in param.opts}
    assert len(named) > 20
    assert named - known == {"--archives", "--packages", "--py-files"} & named


def test_every_command_is_in_the_readme() -> None:
    from odradek.broker.cli import odradek

    text = (ROOT / "README.md").read_text()
    known = set(odradek.list_commands(None))  # type: ignore[arg-type]
    assert {name for name in known if f"`odradek {name}" not in text} == set()


def test_every_key_named_exists() -> None:
    from odradek.cluster.configs.configdef import TOPIC, broker_key

    chapter = (ROOT / "README.md").read_text().partition("## Configuration")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", chapter)) - {"server.properties"}
    assert len(named) > 10
    assert {name for name in named if broker_key(name) is None and name not in TOPIC} == set()


def test_api_table_is_the_rows() -> None:
    assert written() == table(), "run make docs"
