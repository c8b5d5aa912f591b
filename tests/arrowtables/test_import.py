"""What an import of ours pulls in."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.live

LARGE = ("confluent_kafka", "fastavro", "kafka", "numpy", "pandas", "pyarrow", "pyspark")


def imported(module: str) -> list[str]:
    code = f"import sys, {module}; print(*sorted(set({LARGE!r}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_tables_need_no_spark_and_no_librdkafka() -> None:
    assert imported("odradek.arrow") == ["kafka", "numpy", "pyarrow"]


def test_odradek_itself_imports_nothing_of_it() -> None:
    assert imported("odradek") == []


def test_import_without_pyarrow_says_what_installs_it() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import odradek.arrow"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "ImportError: odradek.arrow needs pyarrow: pip install 'odradek[arrow]'"
