"""The state diagrams of docs/states.md are those of the tables."""

from __future__ import annotations

from tests.tools.state_diagrams import PAGE, diagram, page


def test_the_diagrams_are_the_tables() -> None:
    assert PAGE.read_text() == page(), "run make docs"


def test_one_arrow_has_all_that_leads_along_it() -> None:
    drawn = diagram([("A", "B", "x"), ("A", "C", ""), ("A", "B", "y")], "A").splitlines()
    assert drawn[3:6] == ["    [*] --> A", "    A --> B: x, y", "    A --> C"]
