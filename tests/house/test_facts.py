"""Each fact of the protocol is written in one module, and imported elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from odradek.protocol.errors import Error

from .tree import layer, modules

WIRE_ONLY = {"loadtest", "demo"}  # they import nothing of the broker
CONFIGS = "odradek.cluster.configs."  # its defaults are written as in Kafka


def sources() -> Iterator[tuple[str, str]]:
    return ((module, path.read_text()) for module, path in modules() if layer(module) not in WIRE_ONLY)


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r'">qiibIhiqqqhii"', "odradek.protocol.batch"),
        (r'">qiib"', "odradek.protocol.batch"),
        (r"\b0x7F{7}(F{8})?\b|\(1 << (31|63)\) - 1|\b2 ?\*\* ?(31|63)\b", "odradek.protocol.wire"),
        (r"\b(2147483647|9223372036854775807)\b", None),
        (r"orrelation \+ 1", None),
        (r"shift \+= 7", "odradek.protocol.wire odradek.protocol.records.varint"),  # unsigned, and zig-zag
    ],
)
def test_protocol_fact_is_written_once(pattern: str, home: str | None) -> None:
    found = {module for module, text in sources() if re.search(pattern, text, re.I) and not module.startswith(CONFIGS)}
    assert found == set((home or "").split())


def test_error_codes_are_numbered_once() -> None:
    assert [fault for module, text in sources() for fault in _numbered(module, text)] == []


def _numbered(module: str, text: str) -> Iterator[str]:
    """Names of error codes to which `module` assigns a number."""
    if module == "odradek.protocol.errors":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.UnaryOp, ast.Tuple)):
            targets = [name for target in node.targets for name in ast.walk(target)]
            names = {name.id.lstrip("_") for name in targets if isinstance(name, ast.Name)}
            yield from (f"{module}: {name}" for name in names & set(Error.__members__) - {"NONE"})
