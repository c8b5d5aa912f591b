"""The Dockerfile names what there is. No test builds it: that needs an engine for containers."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from functools import cache
from itertools import pairwise
from pathlib import Path

from packaging.specifiers import SpecifierSet

from odradek.broker import config as configuration
from odradek.broker.commands import systemd
from odradek.broker.config import BrokerConfig

from .tree import ROOT, pyproject

PROJECT = pyproject()["project"]


@cache
def instructions() -> list[tuple[str, str]]:
    """Each instruction and its arguments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def of(name: str) -> list[str]:
    """The arguments of each instruction of that name."""
    return [arguments for one, arguments in instructions() if one == name]


def words() -> list[str]:
    """The command line of a container."""
    (entry,), (more,) = of("ENTRYPOINT"), of("CMD")
    return [*json.loads(entry), *json.loads(more)]


def settings() -> BrokerConfig:
    """What the command line sets; an unknown key is a warning."""
    found = words()
    overrides = [word for flag, word in pairwise(found) if flag == "--override"]
    assert len(found) == 2 + 2 * len(overrides)
    return configuration.load(None, overrides)


def test_image_has_the_wheel_that_make_wheel_builds_and_a_python_for_it() -> None:
    (copied,) = of("COPY")
    pattern, there = copied.split()
    name = f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
    assert fnmatch(f"dist/{name}", pattern)
    assert "--wheel-dir dist " in (ROOT / "Makefile").read_text()
    (install,) = [line for line in of("RUN") if line.startswith("pip install ")]
    assert fnmatch(f"{there}{name}", install.split()[-1])
    (image,) = of("FROM")
    version = re.fullmatch(r"python:(3\.\d+)-slim", image)
    assert version is not None and version[1] in SpecifierSet(PROJECT["requires-python"])


def test_container_starts_a_broker_with_settings_that_exist() -> None:
    program, command = words()[:2]
    assert program in PROJECT["scripts"]
    assert (ROOT / "broker" / "commands" / f"{command}.py").is_file()
    assert settings().warnings == ()


def test_container_is_the_user_of_the_units_and_has_its_data_in_the_volume() -> None:
    (user,), (volume,) = of("USER"), of("VOLUME")
    (made,) = [line.split() for line in of("RUN") if line.startswith("useradd ")]
    (by_default,) = [option.default for option in systemd.install.params if option.name == "user"]
    assert made[-1] == user == by_default and made[made.index("--home-dir") + 1] == volume
    assert Path(settings().data_dir).is_relative_to(volume)
    names = [name for name, _ in instructions()]
    assert names.index("RUN") < names.index("USER") < names.index("ENTRYPOINT")


def test_published_port_is_that_of_the_listener_and_of_its_address_for_clients() -> None:
    (port,) = of("EXPOSE")
    (listener,), (advertised,) = settings().listeners, settings().advertised
    assert (listener.port, advertised.port) == (int(port), int(port))
    assert advertised.host == "localhost"


def test_file_has_ten_lines() -> None:
    assert len((ROOT / "Dockerfile").read_text().splitlines()) == 10
