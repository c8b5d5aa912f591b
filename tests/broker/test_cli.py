"""The command line as a program: help, exit codes, one line for each error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker import cli
from odradek.broker import config as configuration
from odradek.broker.errors import BootError
from odradek.broker.help_sections import SECTIONS
from odradek.broker.supervisor import boot

pytestmark = pytest.mark.live

MINE = ("start", "stop", "status", "scale", "run", "log-level")


def odradek(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek.broker", *words], capture_output=True, text=True, timeout=60, cwd=cwd
    )


def test_usage_without_a_command() -> None:
    done = odradek()
    assert done.returncode == 2
    assert "Usage: odradek" in done.stderr + done.stdout
    for name in MINE:
        assert f"\n  {name} " in done.stderr + done.stdout


@pytest.mark.parametrize("name", MINE)
def test_help_has_an_example(name: str) -> None:
    done = odradek(name, "--help")
    assert done.returncode == 0
    assert f"odradek {name}" in done.stdout.partition("Example:")[2]


def test_help_lists_each_command_once() -> None:
    known = cli.odradek.list_commands(None)  # type: ignore[arg-type]  # click needs no context here
    assert sorted(name for names in SECTIONS.values() for name in names) == known


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    """By the script that `odradek completion bash` prints."""
    (tmp_path / "odradek").write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek.broker "$@"\n')
    (tmp_path / "odradek").chmod(0o755)

    def completed(*words: str) -> list[str]:
        asked = f"COMP_WORDS=(odradek {' '.join(words)}); COMP_CWORD={len(words)}; _odradek_completion odradek"
        line = f'eval "$(odradek completion bash)"; {asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, env=path)
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("consumer-g") == ["consumer-groups"]
    assert "--replication-factor" in completed("topics", "--rep")
    assert completed("completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str) -> None:
    """They are not on each machine: the script calls `odradek` as that of bash does."""
    assert f"_ODRADEK_COMPLETE={shell}_complete" in odradek("completion", shell).stdout


def test_unknown_command() -> None:
    done = odradek("statsu")
    assert done.returncode == 2
    assert "Did you mean 'status'?" in done.stderr


@pytest.mark.parametrize("module", ["storage.nonsense", "nonsense", "storage..log"])
def test_a_level_of_a_module_that_is_not_there(module: str) -> None:
    done = odradek("log-level", module, "DEBUG")
    assert done.returncode == 2 and f"no module {module};" in done.stderr


def test_version() -> None:
    assert odradek("--version").stdout.startswith("odradek ")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["log.retention.ms=soon"], "log.retention.ms"),
        (["listeners=SSL://:1", "security.inter.broker.protocol=SSL"], "ssl.keystore.location: must be set"),
        (["nonsense"], "key=value"),
        (["log.dirs=/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_fatal_boot_errors_have_their_own_code(tmp_path: Path, overrides: list[str], message: str) -> None:
    words = [word for override in overrides for word in ("--override", override)]
    done = odradek("start", *words, cwd=tmp_path)
    assert done.returncode == 3
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("odradek.run.dir", "x" * 100, 3),
        ("odradek.run.dir", "/proc/nowhere", 3),
        ("odradek.log.file", "/proc/nowhere", 1),
        ("odradek.log.file", "/tmp", 1),
    ],
)
def test_impossible_paths_are_one_line_that_names_the_key(tmp_path: Path, key: str, value: str, code: int) -> None:
    words = ("--override", f"{key}={value}", "--override", "listeners=PLAINTEXT://127.0.0.1:0")
    done = odradek("start", *words, cwd=tmp_path)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert key in line


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "holiday pictures").mkdir(parents=True)
    done = odradek("start", cwd=tmp_path)
    assert done.returncode == 3
    assert "holiday pictures is not <topic>-<partition>" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"version=0\nbroker.id=abc\n", "broker.id is 'abc', not a number from 0 to 2147483647"),
        (b"version=0\nbroker.id=99999999999\n", "broker.id is '99999999999', not a number"),
        (b"version=1\ncluster.id=c\nnode.id=-1\n", "node.id is '-1', not a number"),
        (b"version=x\nbroker.id=0\n", "version is 'x', not a number"),
        (b"\xff\xfe", "it is damaged: not text"),
    ],
)
def test_a_damaged_identity_is_named_in_one_line(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_bytes(text)
    done = odradek("start", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert f"data/meta.properties: {message}" in done.stderr and "restore it" in done.stderr


def test_the_file_of_the_roles_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "run" / "roles.lock").mkdir(parents=True)
    done = odradek("start", "--override", f"odradek.run.dir={tmp_path}/run", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "roles.lock: Is a directory" in done.stderr


def test_the_file_of_the_roles_is_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "roles.lock").symlink_to("nowhere/roles.lock")
    done = odradek("start", "--override", f"odradek.run.dir={tmp_path}/run", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "roles.lock: No such file or directory" in done.stderr


def test_under_systemd_that_is_one_line_too(tmp_path: Path) -> None:
    """The last steps of a stop: afterwards no process of the broker is left."""
    (tmp_path / "run" / "roles.lock").mkdir(parents=True)
    settings = {"log.dirs": str(tmp_path / "data"), "odradek.run.dir": str(tmp_path / "run")}
    with pytest.raises(BootError, match=r"roles\.lock: Is a directory"):
        boot.again(configuration.resolve(settings))


@pytest.mark.parametrize("target", [None, "nowhere", "data"])
def test_a_log_directory_that_is_no_directory(tmp_path: Path, target: str | None) -> None:
    """A file, a dangling link, and a link to itself."""
    one = tmp_path / "data"
    if target:
        one.symlink_to(target)
    else:
        one.touch()
    done = odradek("start", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert f"log.dirs: {one} is not a directory" in done.stderr


def test_missing_properties_file(tmp_path: Path) -> None:
    done = odradek("start", str(tmp_path / "none.properties"))
    assert done.returncode == 3
    assert "none.properties: No such file" in done.stderr


@pytest.mark.parametrize("words", [["stop"], ["status"], ["status", "--json"], ["scale", "--workers", "2"]])
def test_status_without_a_broker(tmp_path: Path, words: list[str]) -> None:
    done = odradek(*words, "--override", f"log.dirs={tmp_path}")
    assert done.returncode == 1
    assert done.stderr == f"odradek: no broker is running on {tmp_path}\n"


def test_a_role_alone_needs_its_broker(tmp_path: Path) -> None:
    done = odradek("run", "janitor", "--run-dir", str(tmp_path))
    assert done.returncode == 3
    assert "no broker has started there" in done.stderr


def test_only_workers_are_numbered() -> None:
    assert odradek("run", "worker").returncode == 2
    assert odradek("run", "janitor", "--id", "1").returncode == 2


@pytest.mark.parametrize("files", [64, 256])
def test_too_few_open_files_are_one_line(tmp_path: Path, files: int) -> None:
    """Without this check, each process would end with a traceback again and again."""
    words = f"ulimit -n {files}; exec {sys.executable} -m odradek.broker start"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(f"odradek: the limit of open files is {files}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
