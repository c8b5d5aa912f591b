"""Which leftovers a start may remove: the decision, for every combination of what it finds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.supervisor.leftovers import NOTHING, Found, plan
from odradek.ipc import run_note
from odradek.ipc.region_files import RegionFile
from odradek.ipc.run_note import RunNote

KEY, OTHER_KEY = "0123456789ab", "ba9876543210"
US, ANOTHER_USER = 1000, 1001
DEAD, LIVING = 7, 8  # incarnations
BOOT = "this-boot"
FILE = "1:2"
NOTE = RunNote(BOOT, "/data", KEY, DEAD, FILE)


def region(key: str = KEY, uid: int = US, incarnation: int = DEAD, name: str = "control") -> RegionFile:
    return RegionFile(f"odradek-{key}-{name}", key, uid, 4096, incarnation)


def found(**changes: object) -> Found:
    usual = Found(private=True, held=False, note=NOTE, file=FILE, boot=BOOT, uid=US, regions=[region()])
    return usual._replace(**changes)  # type: ignore[arg-type]


def test_a_dead_broker_leaves_nothing() -> None:
    all_of_it = [region(name=name) for name in ("control", "slots-0", "meta-7")]
    assert plan(found(regions=all_of_it)) == (all_of_it, True)
    assert plan(found(regions=[])) == ([], True)


def test_a_broker_that_died_before_its_regions_leaves_only_its_directory() -> None:
    early = NOTE._replace(incarnation=0)
    assert plan(found(note=early, regions=[])) == ([], True)
    assert plan(found(note=early, regions=[region(incarnation=0)])) == NOTHING


@pytest.mark.parametrize(
    "doubt",
    [
        {"private": False},
        {"held": True},
        {"note": None},
        {"note": NOTE._replace(boot="another machine's")},
        {"note": NOTE._replace(file="a copy's")},
        {"boot": ""},
        {"note": NOTE._replace(boot=""), "boot": ""},
    ],
)
def test_any_doubt_leaves_all(doubt: dict[str, object]) -> None:
    assert plan(found(**doubt)) == NOTHING


def test_the_directory_stays_while_a_region_of_its_key_does() -> None:
    """Of a start in another run directory or container, of another user, or unfinished."""
    for kept in (region(incarnation=LIVING), region(uid=ANOTHER_USER), region(incarnation=0)):
        assert plan(found(regions=[region(), kept])) == ([region()], False)


def test_every_combination_removes_only_what_is_dead() -> None:
    """Nothing living is ever in a plan, and each doubt alone is enough."""
    files = [region(*words) for words in itertools.product((KEY, OTHER_KEY), (US, ANOTHER_USER), (0, DEAD, LIVING))]
    notes = [None, *(RunNote(boot, "/d", KEY, run, FILE) for boot in (BOOT, "x") for run in (0, DEAD, LIVING))]
    for private, held, note, boot in itertools.product((True, False), (True, False), notes, (BOOT, "")):
        what = plan(Found(private, held, note, FILE, boot, US, files))
        certain = private and not held and note is not None and note.boot == boot == BOOT
        expected = [one for one in files if certain and note and one == region(KEY, US, note.incarnation or -1)]
        assert what.regions == expected
        assert not what.directory, "regions of the key are left"


texts = st.text(min_size=1)


@given(texts, texts, texts, st.integers())
def test_a_note_is_read_as_it_was_written(boot: str, data_dir: str, key: str, incarnation: int) -> None:
    note = RunNote(boot, data_dir, key, incarnation, FILE)
    assert run_note.decode(note.encode() + b"rest of a longer former note") == note


@given(st.binary() | texts.map(lambda text: f"{text}\n".encode()))
def test_other_content_is_no_note(content: bytes) -> None:
    assert run_note.decode(content) is None
    assert run_note.decode(NOTE.encode()[:-1]) is None


@pytest.mark.parametrize(
    "content", [b"[]\n", b"{}\n", b'{"boot": 1}\n', b'{"boot":"b","data_dir":"d","key":"k","incarnation":"7"}\n']
)
def test_a_note_with_other_fields_is_no_note(content: bytes) -> None:
    assert run_note.decode(content) is None
