"""The table of APIs in ARCHITECTURE.md, from the rows that the broker itself dispatches by.

`python -m tests.tools.api_table` writes it (`make docs`).
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
BEGIN, END = "<!-- api table -->\n", "<!-- end of api table -->\n"


def table() -> str:
    """The Markdown table of all APIs that are served, by key."""
    from odradek.workers.dispatch.api import load_rows

    loaded = load_rows()
    rows = sorted(loaded.values() if isinstance(loaded, dict) else loaded, key=lambda row: row.key)
    lines = [f"| {row.key} | {row.name} | {_versions(*row.versions)} | {row.runs_in} |" for row in rows]
    return "\n".join(["| key | API | versions | answered by |", "|---|---|---|---|", *lines]) + "\n"


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def written() -> str:
    """The table as the page has it."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
