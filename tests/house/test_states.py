"""The state diagrams of docs/states.md equal the transition tables."""

from __future__ import annotations

from tests.tools.state_diagrams import PAGE, diagram, page


def test_written_diagrams_equal_the_transition_tables() -> None:
    assert PAGE.read_text() == page(), "run make docs"


def test_one_arrow_has_all_events_of_its_transition() -> None:
    drawn = diagram([("A", "B", "x"), ("A", "C", ""), ("A", "B", "y")], "A").splitlines()
    assert drawn[3:6] == ["    [*] --> A", "    A --> B: x, y", "    A --> C"]
