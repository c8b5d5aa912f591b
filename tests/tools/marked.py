"""Text that a tool writes into a document, between two comments that name it: all around it is written by hand."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


class Marked:
    """The part `name` of a document, whose path is relative to the repository."""

    def __init__(self, page: str, name: str) -> None:
        self._page = ROOT / page
        self._begin, self._end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"

    def read(self) -> str:
        """The part as the document has it."""
        return self._page.read_text().partition(self._begin)[2].partition(self._end)[0]

    def write(self, text: str) -> None:
        """Replace the part."""
        before, begin, rest = self._page.read_text().partition(self._begin)
        _, end, after = rest.partition(self._end)
        assert begin and end, f"{self._page} has no {self._begin.strip()} … {self._end.strip()}"
        self._page.write_text(before + begin + text + end + after)
