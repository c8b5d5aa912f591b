"""No file of the repository names a package registry or a path of one machine."""

from __future__ import annotations

import re

import pytest

from .tree import tracked_files

# Each name is cut in two, so that the test does not find it in this file.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted",
    "repo1" + ".maven",
    "repo" + ".maven",
    "maven" + "-central",
    "crates" + ".io",
]
HOSTS += ["registry" + ".npmjs", "proxy" + ".golang", "deb" + ".debian", "archive" + ".ubuntu"]
PLACES = ["/wo" + "rk/", "/tmp/co" + "nf-cache", "/ro" + "ot/", "/home/" + r"\w"]
WORDS = re.compile("|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.$}}]){place}" for place in PLACES)]))
OPTIONS = re.compile(r"^\s*(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b", re.MULTILINE)


def found(text: str) -> list[str]:
    """The forbidden names in `text`."""
    return [match.group() for match in WORDS.finditer(text)]


@pytest.mark.live
def test_no_file_names_a_registry_or_a_machine() -> None:
    faults = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        faults += [f"{path}: {name}" for name in found(text)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("text", [HOSTS[0], f"cd {PLACES[0]}main", f"'{PLACES[2]}.m2'", "/home/" + "ann/x"])
def test_forbidden_name_is_found(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text", ["loadtest/" + "work/x", "$HOME/work" + "/x", "http://maven.apache.org/POM/4.0.0", "PyPI"]
)
def test_harmless_name_is_accepted(text: str) -> None:
    assert not found(text)


@pytest.mark.live
def test_lock_files_have_only_pinned_versions() -> None:
    locks = [path for path in tracked_files() if path.suffix == ".lock"]
    assert len(locks) >= 2
    for path in locks:
        assert not OPTIONS.search(path.read_text())
        for line in path.read_text().splitlines():
            assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), f"{path.name}: {line}"
