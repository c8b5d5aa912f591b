"""The Python examples of the documents print what their comments promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.broker import Broker, ExternalBroker

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


def run(code: str, folder: Path) -> list[str]:
    """Run an example as a separate program; return the lines it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()


def check(page: str, count: int, broker: Broker | ExternalBroker, folder: Path) -> None:
    """All examples of a document, one after the other."""
    examples = blocks((ROOT / page).read_text())
    assert len(examples) == count
    for code in examples:
        assert promised(code), "an example without a promised output is not checked"
        assert run(code.replace("localhost:9092", broker.bootstrap), folder) == promised(code), code


@pytest.mark.smoke
def test_examples_of_the_readme(broker: Broker | ExternalBroker, tmp_path: Path) -> None:
    check("README.md", 1, broker, tmp_path)


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
    assert pages == {"README.md", "docs/python.md", "docs/spark.md", "pipeline/README.md"}
