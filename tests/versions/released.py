"""The released versions (.ci/released.toml), their code from the history of this repository, and brokers that run it.

A broker imports `odradek` through a link in its own folder, as it would from an environment: `install` points the link
to the code of another version while the broker runs. So `odradek upgrade` and a restart both find what is "installed".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ..harness.broker import Broker
from ..harness.needs import skip

ROOT = Path(__file__).parents[2]
LIST = ROOT / ".ci" / "released.toml"
VERSIONS: dict[str, str] = tomllib.loads(LIST.read_text())  # version → commit, the newest last
HERE = ROOT / "src"  # the code of this tree
_UNUSED = [f":(exclude){name}" for name in ("arrowtables", "demo", "docs", "loadtest", "pipeline", "tests")]


def code_of(version: str, folder: Path) -> Path:
    """Unpack a version below `folder`, compiled; returns what belongs into `PYTHONPATH`.

    Skips where the clone is shallow, whose maker decided so (.ci/run fetches the rest, if it can); skips, or in CI
    fails, where another history lacks the commit.
    """
    commit, place = VERSIONS[version], folder / f"odradek-{version}"
    place.mkdir()
    archive = subprocess.run(["git", "archive", commit, ".", *_UNUSED], cwd=ROOT, capture_output=True)
    if archive.returncode:
        absent = f"{version} is not in this clone: git fetch --unshallow, or git fetch origin {commit}"
        shallow = subprocess.check_output(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, text=True)
        pytest.skip(absent) if shallow.strip() == "true" else skip(absent)
    subprocess.run(["tar", "-x", "-C", place], input=archive.stdout, check=True)
    # Else each of a broker's first processes compiles hundreds of modules.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "."], cwd=place, check=True)
    return place / "src"


def install(broker: Broker, code: Path) -> None:
    """From now on processes of this broker that are started by exec, and its commands, have this code."""
    broker.folder.mkdir(parents=True, exist_ok=True)
    link = broker.folder / "installed"
    fresh = link.with_suffix(".new")
    fresh.symlink_to(code)
    os.replace(fresh, link)
    others = [place for place in broker.env.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", str(link))]
    broker.env["PYTHONPATH"] = os.pathsep.join([str(link), *others])


def upgrade(broker: Broker, code: Path) -> bool:
    """Install this code and run `odradek upgrade`; whether all processes but the supervisor have it now.

    They have not if it has another layout of shared memory, for example: then the command says to restart the broker.
    """
    running = agreed_versions(broker)
    install(broker, code)
    fits = agreed_versions(broker) == running
    words = [*broker.prefix, sys.executable, "-m", "odradek.broker", "upgrade", str(broker.properties_file)]
    done = subprocess.run(words, env=broker.env, cwd=broker.folder, capture_output=True, text=True, timeout=240)
    if fits:
        assert done.returncode == 0, done.stdout + done.stderr + broker.log[-4000:]
    else:
        assert done.returncode == 1 and "stop the broker and start it" in done.stderr, done.stdout + done.stderr
    return fits


def agreed_versions(broker: Broker) -> dict[str, int]:
    """What processes of the installed code must agree on (broker.process.versions)."""
    text = "import json; from odradek.broker.process import versions; print(json.dumps(versions.here()))"
    done = subprocess.run(
        [sys.executable, "-c", text], env=broker.env, cwd=broker.folder, capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found
