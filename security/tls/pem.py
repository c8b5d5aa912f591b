"""PEM as Kafka reads it (KIP-651): text around the blocks is skipped, and spaces may stand for line ends."""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(
    r"-+BEGIN\s+(?P<label>[A-Z0-9 \t\r\n]+?)\s*-+\s+"
    r"(?P<headers>(?:[^\r\n:]+:[^\r\n]*[\r\n]+)*)"
    r"(?P<body>[a-zA-Z0-9/+=\s]*)"
    r"-+END\s+(?P=label)\s*-+"
)


class Block(NamedTuple):
    """One block; `text` is the same PEM with its line ends in place, which any library reads."""

    label: str
    text: bytes


def blocks(text: str) -> list[Block]:
    """All blocks of `text`, in order."""
    return [_block(found) for found in _BLOCK.finditer(text)]


def _block(found: re.Match[str]) -> Block:
    label = " ".join(found["label"].split())
    body = "".join(found["body"].split())
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    headers = [*found["headers"].split("\n")[:-1], ""] if found["headers"] else []
    text = "\n".join([f"-----BEGIN {label}-----", *headers, *lines, f"-----END {label}-----", ""])
    return Block(label, text.encode())


def certificates(text: str) -> list[bytes]:
    """The blocks that hold certificates."""
    return [block.text for block in blocks(text) if block.label in ("CERTIFICATE", "X509 CERTIFICATE")]


def private_keys(text: str) -> list[bytes]:
    """The blocks that hold private keys, encrypted or not."""
    return [block.text for block in blocks(text) if block.label.endswith("PRIVATE KEY")]
