"""Words that documents and sources of the broker do not use: pronoun subjects, old idioms, and former names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .tree import ROOT, top_folders

IDIOMS = ["whoever", "nobody", "everybody", "somebody", "anew", "is told", "are told", "was told", "hears of"]
FORMER_NAMES = [
    "Busy", "Doomed", "F_VOTERS", "Gone", "Lives", "Outlived", "Switchboard", "Tenure", "Told", "Wish", "bystander",
    "enrolment", "errands", "nursery", "overseer", "slotbook",
]  # fmt: skip
WORDS = re.compile(rf"\b(?:{'|'.join(IDIOMS + FORMER_NAMES)})\b")


def texts() -> Iterator[Path]:
    """Python sources of the broker, and documents that people write."""
    for folder in top_folders():
        yield from sorted(folder.rglob("*.py"))
    yield from sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_sources_and_documents_use_no_unwanted_word() -> None:
    faults = []
    for path in texts():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            faults += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in WORDS.findall(line)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("text", ["The broker is told of it.", "class Busy(Exception):", "for whoever asks"])
def test_an_unwanted_word_is_found(text: str) -> None:
    assert WORDS.search(text)


@pytest.mark.parametrize("text", ["BUSY = 1", "the former owner", "a told_apart field"])
def test_a_plain_word_is_accepted(text: str) -> None:
    assert not WORDS.search(text)
