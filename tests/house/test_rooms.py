"""The folders below a top folder are rooms: imports between them go one way, types included, and none is crowded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from .tree import imports, modules, package_dirs

# Entry points use the whole folder, so they are above its rooms: commands, and modules that pipeline users import.
ENTRIES = {"odradek.broker.__main__", "odradek.broker.cli"}
ENTRIES |= {f"odradek.pipeline.{name}" for name in ("__main__", "session", "source")}
MOST = 25  # modules of a room
CROWDED = {"odradek.workers.apis": 60}  # one file for each Kafka API

BOTH = ["odradek.x.p", "odradek.x.q"]

Rooms = dict[str, set[str]]


def arrows(known: dict[str, str], packages: set[str]) -> Rooms:
    """The rooms of the same top folder that each room imports; `known` are the sources of modules, by name."""
    found: Rooms = defaultdict(set)
    for module, source in known.items():
        here = room(module, packages)
        for name in _imported(module, source, known):
            there = room(name, packages)
            if here != there and _top(name) == _top(module):
                found[here].add(there)
    return found


def _imported(module: str, source: str, known: dict[str, str]) -> Iterator[str]:
    for name, _ in imports(source, module):
        yield from {name if name in known else name.rpartition(".")[0]} & known.keys()


def room(module: str, packages: set[str]) -> str:
    """The package that a module is in; entries are rooms of their own."""
    return module if module in packages | ENTRIES else module.rpartition(".")[0]


def _top(name: str) -> str:
    return ".".join(name.split(".")[:2])


def circle(found: Rooms) -> list[str]:
    """Some rooms that import each other in a circle, in its order; empty when there is none."""
    done: set[str] = set()

    def walk(here: str, way: list[str]) -> list[str]:
        if here in way:
            return way[way.index(here) :]
        if here in done:
            return []
        for there in sorted(found.get(here, ())):
            if round_ := walk(there, [*way, here]):
                return round_
        done.add(here)
        return []

    return next(filter(None, (walk(start, []) for start in sorted(found))), [])


def test_imports_between_rooms_go_one_way() -> None:
    found = arrows({name: path.read_text() for name, path in modules()}, set(package_dirs()))
    for top in {_top(name) for name in found}:
        ours = {here: there for here, there in found.items() if _top(here) == top}
        assert not circle(ours), f"{top}: {' -> '.join(circle(ours))}"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"b": "from odradek.x.p import a"}, []),
        ({"b": "from odradek.x.p.a import f", "a": "from odradek.x.q import b"}, BOTH),
        ({"b": "def f():\n  from odradek.x.p import a", "a": "import odradek.y\nfrom odradek.x.q import b"}, BOTH),
        ({"b": "from odradek.x.q.b import f"}, []),
    ],
)  # fmt: skip
def test_import_circle_of_rooms_is_found(sources: dict[str, str], expected: list[str]) -> None:
    packages = {"odradek.x", "odradek.x.p", "odradek.x.q"}
    known = dict.fromkeys(packages, "") | {"odradek.x.p.a": sources.get("a", ""), "odradek.x.q.b": sources["b"]}
    assert circle(arrows(known, packages)) == expected


def test_modules_import_each_other_one_way() -> None:
    known = {name: path.read_text() for name, path in modules()}
    found: Rooms = {name: set(_imported(name, source, known)) - {name} for name, source in known.items()}
    assert not in_circles(found)


def in_circles(found: Rooms) -> set[str]:
    """The modules that import themselves through others; the import of a package alone does not count."""
    packages = set(package_dirs())
    ways = {name: reached(name, found, packages) for name in found}
    return {name for name, there in ways.items() if name in there}


def reached(start: str, found: Rooms, packages: set[str]) -> set[str]:
    """All modules that `start` imports, directly or through others."""
    done: set[str] = set()
    todo = [start]
    while todo:
        new = {name for name in found.get(todo.pop(), ()) if name not in packages} - done
        done |= new
        todo += new
    return done


def test_import_circle_of_modules_is_found() -> None:
    found = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert in_circles(found) == {"b", "c"}


def test_no_room_has_too_many_modules() -> None:
    for name, folder in package_dirs().items():
        count = sum(path.stem != "__init__" for path in folder.glob("*.py"))
        assert count <= CROWDED.get(name, MOST), f"{name} has {count} modules"


def test_sibling_rooms_share_no_module_name() -> None:
    """A basename says where a module is, so sibling rooms share none. (The pipeline's jobs share some.)"""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, _ in modules():
        parts = name.split(".")
        if name not in package_dirs() and len(parts) > 3 and parts[1] != "pipeline":
            where[".".join(parts[:-2]), parts[-1]].append(name)
    twice = [names for (_, base), names in where.items() if len(names) > 1 and base != "__main__"]
    assert not twice, twice
