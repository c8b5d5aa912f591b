"""The installed units: systemd finds no fault in them, and they are confined."""

from __future__ import annotations

import dataclasses
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker import config
from odradek.broker.supervisor import systemd_units
from odradek.systemd import render
from odradek.systemd.render import Machine

from .machine import install

MOST_EXPOSED = 2.5
SERVICES = [name for name in render.PLACES if name.endswith(".service")]
LIMITS = systemd_units.limits(config.resolve({}))
PLAIN = Machine(Path("/opt/odradek/bin/python"), (Path("/opt/odradek"),), "odradek", ("127.0.0.1:9092",), 2, LIMITS)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of `odradek systemd install --prefix`."""
    prefix = tmp_path_factory.mktemp("prefix")
    install(prefix)
    return prefix


@pytest.mark.smoke
@pytest.mark.live
@pytest.mark.needs("systemd-analyze")
def test_systemd_verifies_the_units(installed: Path) -> None:
    words = ["systemd-analyze", "verify", *map(str, sorted((installed / "etc/systemd/system").iterdir()))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "odradek" in line]
    assert done.returncode == 0 and not ours, done.stderr


@pytest.mark.live
@pytest.mark.needs("systemd-analyze")
def test_proposed_drop_in_for_cpu_affinity_is_valid(tmp_path: Path) -> None:
    """The unit of the worker proposes it in a comment."""
    install(tmp_path)
    system = tmp_path / "etc/systemd/system"
    drop_in = system / "odradek-worker@.service.d/cpu.conf"
    proposed = (system / "odradek-worker@.service").read_text().partition(f"({drop_in.relative_to(system)}):\n")[2]
    drop_in.parent.mkdir()
    drop_in.write_text("".join(line.strip("# ") + "\n" for line in proposed.splitlines()[:2]))
    assert "CPUAffinity=%i" in drop_in.read_text()
    words = ["systemd-analyze", "verify", "odradek-worker@0.service"]
    search = {**os.environ, "SYSTEMD_UNIT_PATH": f"{system}:"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=search)
    assert done.returncode == 0 and "odradek" not in done.stderr, done.stderr


@pytest.mark.live
@pytest.mark.needs("systemd-analyze")
def test_systemd_verify_finds_a_fault(tmp_path: Path) -> None:
    """Else the tests above show nothing."""
    unit = tmp_path / "odradek-wrong.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nTypo=yes\n")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert "Typo" in done.stderr


@pytest.mark.live
@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("service", SERVICES)
def test_exposure_of_each_service_is_low(installed: Path, service: str) -> None:
    path = installed / "etc/systemd/system" / service
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED, done.stdout


@pytest.mark.live
def test_install_names_this_interpreter(installed: Path) -> None:
    for service in SERVICES:
        text = (installed / "etc/systemd/system" / service).read_text()
        assert re.search(f"Exec(Start|Stop)={re.escape(sys.executable)} -P -m odradek.(broker|pipeline) ", text)
        assert "@" not in re.sub(r"worker@|@system-service|@privileged|@resources", "", text), "a placeholder is left"


@pytest.mark.live
def test_only_a_cluster_wants_the_replicator(tmp_path: Path) -> None:
    target = tmp_path / "etc/systemd/system/odradek.target"
    install(tmp_path)
    assert "odradek-replicator" not in target.read_text()
    with (tmp_path / "etc/odradek/server.properties").open("a") as properties:
        properties.write("zookeeper.connect=localhost:2181\n")
    install(tmp_path)
    wanted = [line for line in target.read_text().splitlines() if "odradek-replicator.service" in line]
    assert len(wanted) == 1 and wanted[0].startswith("Wants=") and "odradek-cluster.service" in wanted[0]


def test_exporter_starts_only_if_metrics_are_served() -> None:
    for exporter in (False, True):
        target = render.files(dataclasses.replace(PLAIN, exporter=exporter))["etc/systemd/system/odradek.target"]
        assert ("odradek-exporter.service" in target) is exporter


def test_only_services_with_connections_have_a_network(tmp_path: Path) -> None:
    connected = {"memory", "controller", "coordinator", "replicator"}
    for cluster in (False, True):
        texts = render.files(dataclasses.replace(PLAIN, cluster=cluster))
        names = [name.removesuffix(".service").removeprefix("odradek-") for name in SERVICES]
        alone = {name for name in names if "PrivateNetwork=yes" in texts[f"etc/systemd/system/odradek-{name}.service"]}
        assert alone == set(names) - {"archive", "exporter"} - (connected if cluster else set())


@pytest.mark.live
def test_repeated_install_keeps_the_configuration(tmp_path: Path) -> None:
    install(tmp_path, "--user", "broker")
    properties = tmp_path / "etc/odradek/server.properties"
    properties.write_text("listeners=PLAINTEXT://:19092\nlog.dirs=/srv/log a,/srv/b\nodradek.workers=3\n")
    install(tmp_path, "--user", "broker")
    assert "19092" in properties.read_text()
    system = tmp_path / "etc/systemd/system"
    assert "ListenStream=19092\n" in (system / "odradek.socket").read_text()
    assert "odradek-worker@2.service\n" in (system / "odradek.target").read_text()
    worker = (system / "odradek-worker@.service").read_text()
    assert "User=broker\n" in worker
    assert 'ReadWritePaths="/srv/log a"\nReadWritePaths=/srv/b\n' in worker
    assert 'd "/srv/log a" 0750 broker broker -\nd /srv/b ' in (tmp_path / "etc/tmpfiles.d/odradek.conf").read_text()
    assert (tmp_path / "etc/sysusers.d/odradek.conf").read_text().splitlines()[-1].startswith("u broker ")


def test_install_refuses_a_listener_without_a_port(tmp_path: Path) -> None:
    properties = tmp_path / "etc/odradek/server.properties"
    properties.parent.mkdir(parents=True)
    properties.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    with pytest.raises(systemd_units.UnitsError, match="needs a port of its own"):
        systemd_units.install(tmp_path, "odradek")


@pytest.mark.parametrize(
    ("listeners", "streams"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ("127.0.0.1:9092",)),
        ("PLAINTEXT://:9092", ("9092",)),
        ("PLAINTEXT://0.0.0.0:9092", ("0.0.0.0:9092",)),
        ("PLAINTEXT://[::1]:9092", ("[::1]:9092",)),
        ("PLAINTEXT://localhost:9092", ("127.0.0.1:9092",)),
        ("A://127.0.0.1:1,B://127.0.0.2:2", ("127.0.0.1:1", "127.0.0.2:2")),
    ],
)
def test_listeners_become_sockets(listeners: str, streams: tuple[str, ...]) -> None:
    settings = [f"listeners={listeners}", "advertised.listeners=PLAINTEXT://h:9092"]
    if listeners.startswith("A:"):
        names = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
        settings = [settings[0], names, "inter.broker.listener.name=A"]
    assert systemd_units.machine_of(config.load(None, settings), "odradek").sockets == streams


def test_programs_in_a_home_directory_are_bound() -> None:
    here = Path("/home", "me", "x")
    home = dataclasses.replace(PLAIN, programs=(here / ".venv", here, Path("/usr")))
    text = render.files(home)["etc/systemd/system/odradek-worker@.service"]
    assert f"ProtectHome=tmpfs\nBindReadOnlyPaths={here}\n" in text, "only the outermost directory is bound"
    assert "ProtectHome=yes\n" in render.files(PLAIN)["etc/systemd/system/odradek-worker@.service"]


def test_data_in_hidden_directories_is_bound() -> None:
    dirs = (Path("/srv/log"), Path("/tmp/kafka-logs"))
    there = dataclasses.replace(PLAIN, log_dirs=dirs, log_file=Path("/home", "me", "odradek.log"))
    text = render.files(there)["etc/systemd/system/odradek-worker@.service"]
    home = Path("/home", "me")
    assert f"ReadWritePaths=/srv/log\nBindPaths=/tmp/kafka-logs\nBindPaths=-{home}\n" in text
    assert "ProtectHome=tmpfs\n" in text


@pytest.mark.live
def test_archive_unit_reads_broker_data_and_writes_its_own(installed: Path) -> None:
    """The timer is hourly and catches up on a missed run; the unit must not remove the broker's shared memory."""
    system = installed / "etc/systemd/system"
    text = (system / "odradek-archive.service").read_text()
    assert re.findall(r"^(?:StateDirectory|WorkingDirectory|RemoveIPC|ReadWritePaths)=.*", text, re.M) == [
        "RemoveIPC=no", "StateDirectory=odradek-archive", "WorkingDirectory=/var/lib/odradek-archive",
    ]  # fmt: skip
    assert "MemoryDenyWriteExecute=no\n" in text and "RuntimeDirectory" not in text
    timer = (system / "odradek-archive.timer").read_text()
    assert "OnCalendar=hourly\nPersistent=true\n" in timer and "WantedBy=timers.target\n" in timer
    there = dataclasses.replace(PLAIN, log_dirs=(Path("/srv/log"), Path("/tmp/logs")))
    text = render.files(there)["etc/systemd/system/odradek-archive.service"]
    assert "BindReadOnlyPaths=-/tmp/logs\nWorkingDirectory" in text and "/srv/log" not in text


@pytest.mark.parametrize(
    ("socket", "server"),
    [("127.0.0.1:9", "127.0.0.1:9"), ("[::1]:9", "[::1]:9"), ("9", "localhost:9"), ("0.0.0.0:9", "localhost:9")],
)
def test_archive_unit_passes_valid_options_to_the_job(socket: str, server: str) -> None:
    """Each option is one of the archive job."""
    from odradek.pipeline.jobs.archive.command import archive
    from odradek.pipeline.reading import subscription

    text = render.archive(dataclasses.replace(PLAIN, sockets=(socket,)))
    (value,) = re.findall(r"^ODRADEK_ARCHIVE=(.*)", text, re.M)
    words = dict(word.split() for word in re.findall(r"--\S+ \S+", value))
    assert words == {
        "--bootstrap-server": server, "--topics-pattern": "^[^_]", "--to": "file:/var/lib/odradek-archive",
    }  # fmt: skip
    assert set(words) <= {option for parameter in archive.params for option in parameter.opts}
    found = subscription.parse({"subscribepattern": words["--topics-pattern"]})
    assert found.names(dict.fromkeys(["__x", "_schemas", "a_b", "orders"], 1)) == ["a_b", "orders"]


@pytest.mark.live
def test_repeated_install_keeps_the_archive_options(tmp_path: Path) -> None:
    install(tmp_path)
    file = tmp_path / "etc/odradek/archive.conf"
    assert file.exists()
    file.write_text("ODRADEK_ARCHIVE=--nothing\n")
    install(tmp_path)
    assert file.read_text() == "ODRADEK_ARCHIVE=--nothing\n"


@pytest.mark.live
def test_install_warns_of_directories_that_a_boot_empties(tmp_path: Path) -> None:
    opt, tmp = Path("/opt/odradek"), Path("/var", "tmp", "x")
    assert systemd_units.swept("a is", [opt], "move it") == ""
    assert systemd_units.swept("a is", [opt, tmp], "move it").startswith(f"a is in {tmp}: ")
    assert Path(sys.prefix) in systemd_units.programs()
    install(tmp_path)
    assert not [text for text in systemd_units.warnings(tmp_path, "odradek") if "log.dirs" in text]
    (tmp_path / "etc/odradek/server.properties").write_text("log.dirs=/tmp/kafka-logs\n")
    assert "log.dirs is in /tmp/kafka-logs" in systemd_units.warnings(tmp_path, "odradek")[-1]


def test_paths_in_units_are_escaped() -> None:
    assert str(render.escaped(Path("/a b/50%"))) == '"/a b/50%%"'


def test_install_warns_of_a_user_whose_logout_removes_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With logind's RemoveIPC, only system users keep their shared memory."""
    assert systemd_units.trap("no-such-user-here") == "" == systemd_units.trap("root")

    def person(_name: str) -> object:
        return pwd.struct_passwd(("me", "x", 1000, 1000, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", person)
    assert "RemoveIPC" in systemd_units.trap("me")
