"""Access of other users to a broker's data: docs/threat-model.md lists all files and regions with their readers."""

from __future__ import annotations

import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.ipc.rundir import run_dir, shm_prefix

from ..clients.admin import create_topic
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.process import wait_until
from ..workers.authentication.secured_broker import OTHER_PASSWORD, PASSWORD, SecuredBroker

pytestmark = pytest.mark.live

MODEL = Path(__file__).parents[2] / "docs" / "threat-model.md"
TOKEN_KEY = "key-of-tokens-5d1c"
SETTINGS = {
    "odradek_workers": 1,
    "delegation_token_secret_key": TOKEN_KEY,
    "log_flush_offset_checkpoint_interval_ms": 500,
}
RECORD = b"a record that nobody else may read"
UMASK = 'umask 022; exec "$@"'


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    """A broker with a record, secrets, the usual umask, and a limit that allows core dumps."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-private-"))  # pytest's own folders are not accessible to others
    folder.chmod(0o755)
    made = SecuredBroker(folder / "broker", **SETTINGS)
    made.prefix = ["prlimit", "--core=unlimited", "sh", "-c", UMASK, "sh"]
    try:
        made.start()
        wire, topic = made.authenticated("SASL_SSL"), create_topic(made, "private")
        assert produce(wire, topic, batch([RECORD])).error_code == 0
        wait_until(lambda: (made.data_dir / "recovery-point-offset-checkpoint").exists(), 60, "a checkpoint is written")
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def processes(broker: SecuredBroker) -> list[psutil.Process]:
    assert broker.process is not None
    first = psutil.Process(broker.process.pid)
    return [first, *first.children(recursive=True)]


def open_to_others(path: Path) -> bool:
    """Whether another user can read the file, or connect to the socket."""
    if not path.exists():  # removed in between
        return False
    needed = stat.S_IWOTH if path.is_socket() else stat.S_IROTH
    found = [(path, needed), *((parent, stat.S_IXOTH) for parent in path.parents)]
    return all(one.stat().st_mode & bit for one, bit in found)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def named_in(heading: str) -> str:
    """The part of the threat model under a heading."""
    return MODEL.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_only_the_named_files_are_open_to_others(broker: SecuredBroker) -> None:
    text = " ".join(line for line in named_in("Files").splitlines() if line.startswith("| *`meta"))
    patterns = re.findall(r"`([^`]+)`", text)
    readable = [path for path in files_below(broker.data_dir) if open_to_others(path)]
    assert {path.name for path in readable} >= {"meta.properties", "partition.metadata"}, "the test finds none"
    names = {path.name.removesuffix(".tmp") for path in readable}
    assert {name for name in names if not any(Path(name).match(pattern) for pattern in patterns)} == set()
    secrets = [secret.encode() for secret in (PASSWORD, OTHER_PASSWORD, TOKEN_KEY)]
    texts = b"".join(path.read_bytes() for path in readable if path.exists())
    assert not [secret for secret in [*secrets, RECORD] if secret in texts]


def test_the_run_dir_is_closed_and_the_model_names_what_is_in_it(broker: SecuredBroker) -> None:
    found = files_below(run_dir(str(broker.data_dir)))
    assert [path for path in found if open_to_others(path)] == []
    text = named_in("Channels") + named_in("Files")
    known = re.findall(r"`([^`]+)`", text)
    left = {path.name for path in found if not any(path.match(pattern) for pattern in known)}
    assert all(name.endswith(".lock") for name in left), left


def test_every_region_is_closed_and_in_the_model(broker: SecuredBroker) -> None:
    prefix = shm_prefix(str(broker.data_dir)).removeprefix("/")
    regions = list(Path("/dev/shm").glob(f"{prefix}*"))
    assert len(regions) > 3
    assert {path.stat().st_mode & 0o777 for path in regions} == {0o600}
    patterns = re.findall(r"^\| `([^`]+)` \|", named_in("Shared memory"), re.MULTILINE)
    names = {path.name.removeprefix(prefix) for path in regions}
    assert {name for name in names if not any(Path(name).match(pattern) for pattern in patterns)} == set()


def test_no_secret_is_in_command_lines_environments_titles_or_the_log(broker: SecuredBroker) -> None:
    shown = [broker.log, broker.command("status", str(broker.properties_file), "--json").stdout]
    for process in processes(broker):
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().decode()
        shown += ["\n".join(process.cmdline()), environment, process.name()]
    assert len(shown) > 12
    assert [text for text in shown for secret in (PASSWORD, OTHER_PASSWORD, TOKEN_KEY) if secret in text] == []


def test_no_process_writes_a_core_dump(broker: SecuredBroker) -> None:
    """Not even after `ulimit -c unlimited`; the hard limit stays, so that a crash can be debugged."""
    limits = {
        process.rlimit(psutil.RLIMIT_CORE) for process in processes(broker) if "fork-server" not in process.cmdline()
    }
    assert {soft for soft, _ in limits} == {0}
    assert {hard for _, hard in limits} == {psutil.RLIM_INFINITY}
