"""The library's message classes are found where `library.MODULES` says, and none is made that was not asked for."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from odradek.protocol import library

FOUND = """
import json, sys
from odradek.protocol import library
library.message_class("ProduceRequest")
loaded = [name for name in sys.modules if name.startswith("kafka.protocol.")]
from kafka.protocol.admin import CreateTopicsRequest
print(json.dumps([loaded, CreateTopicsRequest is library.message_class("CreateTopicsRequest")]))
"""


def apis_of(module: str) -> set[str]:
    """The APIs that have a request in one of the library's modules."""
    loaded = importlib.import_module(f"kafka.protocol.{module}")
    return {name.removesuffix("Request") for name in loaded.__all__ if name.endswith("Request")}


def test_modules_have_the_apis_that_the_table_says() -> None:
    """So a release of the library that moves a class is noticed; it would be found, but with all others."""
    assert {module: apis_of(module) for module in library.MODULES} == {
        module: set(apis.split()) for module, apis in library.MODULES.items()
    }


@pytest.mark.live
def test_a_class_is_made_without_those_of_other_apis_and_the_packages_work_as_ever() -> None:
    done = subprocess.run([sys.executable, "-c", FOUND], capture_output=True, text=True, check=True)
    loaded, same = json.loads(done.stdout)
    assert "kafka.protocol.producer.produce" in loaded
    assert {f"kafka.protocol.{module}" for module in library.MODULES} & set(loaded) == {
        "kafka.protocol.producer.produce"
    }
    assert same
