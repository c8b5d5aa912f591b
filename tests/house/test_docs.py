"""The documents agree with the tree: all that they name exists, and their tables equal the code's."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.tools import api_table, config_reference

from .tree import ROOT, tracked_files

JOBS = "pipeline/README.md"
WRITTEN_BY_TESTS = "tests/"  # and by `make bench`: LONG.md, CHAOS.md and the like
RESULTS = "loadtest/RESULTS.md"
WALKS = ["docs/produce.md", "docs/fetch.md", "docs/cluster.md", "docs/groups-and-transactions.md", "docs/pipeline.md"]
FILE = re.compile(r"`((?:[a-z]\w*/)(?:\w+/)*(?:[a-z0-9_@-]+\.[a-z]+)?|[A-Z]+\.md)`")
MODULE = re.compile(r"`((?:\w+/)+\w+\.py)`")
STEP = re.compile(r"^ *(?:\d+\.|-) \*\*`([^`]+)`\*\*", re.MULTILINE)
FUNCTION = re.compile(r"`([A-Za-z_][\w.]*)\(\)`")
LINK = re.compile(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"(?:`|^)make ([a-z]+(?:-[a-z]+)*)", re.MULTILINE)
COLUMNS = 120


def documents() -> list[str]:
    """All documents that people write, by their paths."""
    paths = (path.relative_to(ROOT).as_posix() for path in tracked_files() if path.suffix == ".md")
    return [path for path in paths if path != RESULTS and not path.startswith(WRITTEN_BY_TESTS)]


DOCUMENTS = documents()


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_file_named_exists(page: str) -> None:
    text = text_of(page)
    files = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    links = [name for name in LINK.findall(text) if not (ROOT / page).parent.joinpath(name).exists()]
    assert files + links == []


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_anchor_exists(page: str) -> None:
    """`file.md#a-heading` and `#a-heading`."""
    for name, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", text_of(page)):
        target = (ROOT / page).parent / name if name else ROOT / page
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, name


def test_every_document_is_found_from_the_readme() -> None:
    """README and ARCHITECTURE say where to read on."""
    seen, left = set[str](), ["README.md"]
    while left:
        page = left.pop()
        if page not in seen and page.endswith(".md"):
            seen.add(page)
            targets = [(ROOT / page).parent.joinpath(name).resolve() for name in LINK.findall(text_of(page))]
            left += [target.relative_to(ROOT).as_posix() for target in targets]
    assert set(DOCUMENTS) - seen == set()


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page != JOBS])
def test_no_line_of_prose_is_too_long(page: str) -> None:
    """Tables and code have their own lengths."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > COLUMNS and not line.startswith("|")] == []


@pytest.mark.parametrize("page", WALKS)
def test_every_function_of_a_walkthrough_is_in_its_file(page: str) -> None:
    """A part names each file as a step once, in the order in which the code runs; its functions are in these files."""
    steps = 0
    for part in re.split(r"^## ", text_of(page), flags=re.MULTILINE)[1:]:
        files = STEP.findall(part)
        assert len(files) == len(set(files)), f"{page}: a step back in {part.splitlines()[0]}"
        defined = set[str]().union(*(functions(ROOT / name) for name in MODULE.findall(part)))
        named = set(FUNCTION.findall(part)) if files else set()
        assert named - defined == set(), f"{page}: {part.splitlines()[0]}"
        steps += len(files)
    assert steps >= 5


@cache
def functions(path: Path) -> frozenset[str]:
    """The definitions of a module: `function`, `Class`, `Class.method`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return frozenset(found)


def test_glossary_is_in_alphabetical_order() -> None:
    words = re.findall(r"^\*\*(.+?)\.\*\*", text_of("docs/glossary.md"), re.MULTILINE)
    assert len(words) > 20
    assert words == sorted(words, key=str.lower)


def test_every_make_target_named_exists() -> None:
    makefile = text_of("Makefile")
    found = 0
    for page in DOCUMENTS:
        targets = TARGET.findall(text_of(page))
        assert [name for name in targets if f"\n{name}:" not in makefile] == [], page
        found += len(targets)
    assert found > 10


def test_every_command_named_exists() -> None:
    from odradek.broker.cli import odradek

    known = set(odradek.list_commands(None))  # type: ignore[arg-type]  # click needs no context here
    named = {name for page in DOCUMENTS for name in re.findall(r"(?:/bin/|`)odradek ([a-z][a-z-]+)", text_of(page))}
    assert len(named) > 10
    assert named <= known


def test_every_option_of_a_job_exists() -> None:
    """Options of Spark's own programs are exempt."""
    from odradek.pipeline.__main__ import pipeline

    text = text_of(JOBS)
    named = set(re.findall(r"`(--[a-z][a-z-]+)", text)) | set(
        re.findall(r"odradek pipeline .*? (--[a-z][a-z-]+)", text)
    )
    jobs = [pipeline.get_command(None, name) for name in pipeline.list_commands(None)]  # type: ignore[arg-type]  # click needs no context here
    known = {option for job in jobs if job for param in job.params for option in param.opts}
    assert len(named) > 20
    assert named - known == {"--archives", "--packages", "--py-files"} & named


def test_every_command_is_in_the_list() -> None:
    from odradek.broker.cli import odradek

    text = text_of("docs/commands.md")
    known = set(odradek.list_commands(None))  # type: ignore[arg-type]  # click needs no context here
    assert {name for name in known if f"`odradek {name}" not in text} == set()


# Names of files, client settings and options of the data source; a config table has all other names of that form.
NO_SETTINGS = re.compile(
    r".*\.(properties|toml|json|lock|sock|socket|ipc)|partition\.metadata|isolation\.level|linger\.ms|fetch\.(min\.bytes|max\.wait\.ms)"
    r"|odradek\.(arrow|id|parquet|transactional|logging)|(logging|os)\.[a-z]+"  # modules of Python and ours, too
)


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page != JOBS])
def test_every_setting_named_exists(page: str) -> None:
    from odradek.cluster.configs.configdef import TOPIC, broker_key
    from odradek.loghandler.handler_settings import KNOWN

    named = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=[^`]*)?`", text_of(page)))
    unknown = {name for name in named - KNOWN if broker_key(name) is None and name not in TOPIC}
    assert {name for name in unknown if not NO_SETTINGS.fullmatch(name)} == set()


@pytest.mark.parametrize(
    ("written", "now"),
    [
        (api_table.PART.read, api_table.table),
        (config_reference.PART.read, config_reference.reference),
    ],
    ids=["docs/apis.md", "docs/configuration.md"],
)
def test_tables_equal_the_codes(written: Callable[[], str], now: Callable[[], str]) -> None:
    assert written() == now(), "run make docs"
