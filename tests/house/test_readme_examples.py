"""The Python examples of the documents print what their comments promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.broker import Broker, ExternalBroker

from .nested import run_pytest
from .test_docs import DOCUMENTS
from .tree import ROOT

pytestmark = pytest.mark.live

SECONDS = 180


def blocks(markdown: str, language: str = "python") -> list[str]:
    """The code blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)


def promised(code: str) -> list[str]:
    """The output that the comments of `code` promise."""
    return re.findall(r"^# -> (.*)$", code, re.MULTILINE)


def is_test(code: str) -> bool:
    """Whether an example is for pytest."""
    return "\ndef test_" in code


def check_tests(page: str, count: int, folder: Path) -> None:
    """Run all tests of a document in one run of pytest, in a project that has our plugin."""
    codes = [code for code in blocks((ROOT / page).read_text()) if is_test(code)]
    assert len(codes) == count
    (folder / "pytest.ini").touch()
    for number, code in enumerate(codes):
        (folder / f"test_{number}.py").write_text(code)
    done = run_pytest(folder, "-p", "odradek.inside.pytest_plugin", "-p", "no:cacheprovider", seconds=SECONDS)
    passed = sum(code.count("\ndef test_") for code in codes)
    assert done.returncode == 0 and f"{passed} passed" in done.stdout, done.stdout + done.stderr


def run(code: str, folder: Path) -> list[str]:
    """Run an example as a separate program; return the lines it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()


def check(page: str, count: int, broker: Broker | ExternalBroker, folder: Path) -> None:
    """All examples of a document that are programs, one after the other."""
    examples = [code for code in blocks((ROOT / page).read_text()) if not is_test(code)]
    assert len(examples) == count
    for code in examples:
        assert promised(code), "an example without a promised output is not checked"
        assert run(code.replace("localhost:9092", broker.bootstrap), folder) == promised(code), code


@pytest.mark.smoke
def test_examples_of_the_readme(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    check("README.md", 1, broker, tmp_path)


@pytest.mark.smoke
def test_test_of_the_readme_passes(tmp_path: Path) -> None:
    check_tests("README.md", 1, tmp_path)


def test_tests_of_the_page_about_tests_pass(tmp_path: Path) -> None:
    check_tests("docs/testing.md", 3, tmp_path)


def test_examples_of_the_page_about_tests(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    """They start brokers of their own."""
    check("docs/testing.md", 2, broker, tmp_path)


def test_examples_of_the_logging_page(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    check("docs/logging.md", 1, broker, tmp_path)


def test_examples_of_the_page_about_tables(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    check("docs/arrow.md", 3, broker, tmp_path)


@pytest.fixture(scope="module")
def orders(broker: Broker | ExternalBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The topic `orders`, which the examples of docs/python.md leave and those of docs/spark.md read."""
    check("docs/python.md", 4, broker, tmp_path_factory.mktemp("python"))


@pytest.mark.usefixtures("orders")
def test_examples_of_the_python_page() -> None:
    """The fixture `orders` runs and checks them."""


@pytest.mark.needs("java")
@pytest.mark.usefixtures("orders")
def test_examples_of_the_spark_page(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    check("docs/spark.md", 1, broker, tmp_path)


def test_every_example_is_run() -> None:
    """A document with Python code needs a test above; the examples of pipeline/README.md are parts of programs."""
    pages = {page for page in DOCUMENTS if blocks((ROOT / page).read_text())}
    assert pages == {
        "README.md", "docs/arrow.md", "docs/logging.md", "docs/python.md", "docs/spark.md", "docs/testing.md",
        "pipeline/README.md",
    }  # fmt: skip
