"""The table of APIs in docs/apis.md, from the rows that the broker itself dispatches by.

`python -m tests.tools.api_table` writes it (`make docs`).
"""

from __future__ import annotations

from .marked import Marked

PART = Marked("docs/apis.md", "api table")


def table() -> str:
    """The Markdown table of all APIs that are served, by key."""
    from odradek.workers.apis.table import load_rows

    rows = sorted(load_rows().values(), key=lambda row: row.key)
    lines = [f"| {row.key} | {row.name} | {_versions(*row.versions)} | {row.runs_in} |" for row in rows]
    return "\n".join(["| key | API | versions | answered by |", "|---|---|---|---|", *lines]) + "\n"


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


if __name__ == "__main__":
    PART.write(table())
