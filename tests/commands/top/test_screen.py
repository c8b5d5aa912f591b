"""The screen of `odradek top` without a terminal: lines as a function of keys."""

from __future__ import annotations

import pytest

from odradek.broker.commands.top.rows import Table, numbers, short, words
from odradek.broker.commands.top.screen import BAD, CURSOR, FRAME, GOOD, Shown, View, lines

SIZES = [3, 200, 40, 5]
ROWS = Table(
    "topics", ["b-one", "a-two", "C-one", "d"], [numbers("SIZE", 6, SIZES, short), words("X", 3, list("wxyz"))]
)
SHOWN = Shown("nothing is wrong", "broker 1", [Table("wrong"), ROWS])


def press(view: View, *keys: str, shown: Shown = SHOWN) -> View:
    for key in keys:
        view.press(key, shown, 10)
    return view


def names(view: View, shown: Shown = SHOWN, height: int = 24) -> list[str]:
    made = [line.text.split() for line in lines(view, shown, 80, height)[4:-1]]
    return [words[0] for words in made if words]


def test_the_screen_is_as_large_as_the_terminal() -> None:
    for width, height in ((80, 24), (200, 60), (80, 6)):
        made = lines(View(), SHOWN, width, height)
        assert [len(line.text) for line in made] == [width] * height


def test_screen_has_state_tabs_table_and_keys() -> None:
    made = lines(View(), SHOWN, 40, 24)
    assert (made[0].text.strip(), made[0].style) == ("nothing is wrong", GOOD)
    assert made[1].text.strip() == "broker 1"
    assert made[2].text.strip() == "1 wrong  [2 topics: 4]"
    assert made[3].text == f"{'TOPICS^':<29}   SIZE   X"
    assert made[-1].text.startswith("q quit")
    assert [line.style for line in made].count(CURSOR) == 1


def test_error_is_highlighted() -> None:
    assert lines(View(), SHOWN._replace(wrong="ERROR: broken"), 80, 24)[0].style == BAD


def test_keys_select_the_sort_column_and_direction() -> None:
    view = View()
    assert names(view) == ["C-one", "a-two", "b-one", "d"]
    assert names(press(view, "s")) == ["a-two", "C-one", "d", "b-one"]
    assert lines(view, SHOWN, 80, 24)[3].text.split()[1] == "SIZEv"
    assert names(press(view, "r")) == ["b-one", "d", "C-one", "a-two"]
    assert names(press(view, "s")) == ["d", "C-one", "a-two", "b-one"]
    assert names(press(view, "s")) == ["C-one", "a-two", "b-one", "d"]


def test_filter_shows_matching_rows() -> None:
    view = press(View(), "/", "O", "N")
    assert lines(view, SHOWN, 80, 24)[-1].text.startswith("filter: ON_")
    assert len(names(view)) == 4, "the filter applies only after Enter"
    assert names(press(view, "x", "backspace", "enter")) == ["C-one", "b-one"]
    assert "filter: ON (Esc ends it)" in lines(view, SHOWN, 80, 24)[-1].text
    assert len(names(press(view, "escape"))) == 4


def test_escape_cancels_a_filter_entry() -> None:
    assert len(names(press(View(), "/", "o", "escape"))) == 4


def test_search_moves_to_the_next_match_and_around() -> None:
    view = press(View(), "?", "o", "n", "e", "enter")
    assert view.cursor == 2
    assert press(view, "n").cursor == 0
    assert press(view, "n").cursor == 2


def test_tab_and_digits_select_the_view() -> None:
    view = View()
    assert press(view, "tab").tab == 0
    assert press(view, "2").tab == 1
    assert press(view, "9").tab == 1


def test_space_pauses_and_q_ends() -> None:
    view = press(View(), " ")
    assert view.is_paused and "PAUSED" in lines(view, SHOWN, 80, 24)[1].text
    assert not press(view, " ").is_paused
    assert press(View(), "q").has_ended and press(View(), "/", "c-c").has_ended
    assert not press(View(), "/", "q").has_ended


def test_scrolling_keeps_the_cursor_on_the_screen() -> None:
    many = Shown("", "", [Table("a"), Table("b", [f"{number:05}" for number in range(1000)])])
    view = press(View(), "end", shown=many)
    assert names(view, many)[-1] == "00999" and view.cursor == 999
    press(view, "pageup", "up", shown=many)
    assert view.cursor == 988 and len(names(view, many)) == 24 - FRAME
    assert names(press(view, "home", shown=many), many)[0] == "00000"


def test_control_characters_do_not_reach_the_terminal() -> None:
    bad = Shown("", "", [Table("a"), Table("b", ["g\x1b[2J\n"])])
    assert not any("\x1b" in line.text or "\n" in line.text for line in lines(View(), bad, 80, 24))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (7, "7"),
        (12.7, "13"),
        (1500, "1.5k"),
        (123_456, "123k"),
        (2.5e6, "2.5M"),
        (4e12, "4.0T"),
    ],
)
def test_numbers_are_shortened(value: float, text: str) -> None:
    assert short(value) == text
