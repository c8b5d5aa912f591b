"""The steps before the first process, in this order: limits, directories, role byte, run note, what dead brokers left,
shared memory, listening sockets, config.json. Each failure is a BootError: one line, and the former state untouched.

`odradek start` keeps what they create until its end. Under systemd a unit creates it and exits, and `again` reopens it
for the last steps."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.exporter.access import listener_names
from odradek.broker.listeners import ListenerError
from odradek.broker.process import process, sockets
from odradek.broker.process.dir_locks import LogDirLocks
from odradek.broker.supervisor import leftovers, machine_limits, run_files, shm_room
from odradek.cluster.configs import dynamic_passwords, quota_windows
from odradek.cluster.tree import znodes
from odradek.cluster.tree.znodes import MalformedNode
from odradek.ipc import quotas, region, roles, run_note, rundir
from odradek.ipc.locks import SWEEP, RoleLocks
from odradek.ipc.region import RegionError, SharedMemoryFull
from odradek.ipc.run_note import RunNote
from odradek.ipc.shm import Shared
from odradek.security.quotas.rates import Rate
from odradek.storage.dirs import boot_id, logdirs
from odradek.storage.dirs.reserve import Reserve
from odradek.storage.files import checkpoints

log = logging.getLogger(__name__)

DYING_TIMEOUT_S = 5.0
_SWEEP_S = 0.5
_AGAIN_S = 0.005
_OTHERS = range(1, roles.ROLES)
_Wanted = tuple[int, str | None, bytes | None]


@dataclass
class Boot:
    """The resources that a supervisor owns while it lives."""

    config: BrokerConfig
    run_dir: Path
    locks: RoleLocks
    shared: Shared
    listening: dict[str, socket.socket]

    def stop_listening(self) -> None:
        """Refuse new clients; harmless when repeated."""
        for sock in self.listening.values():
            sock.close()

    def leave(self) -> None:
        """Release everything; only the broker's data remains."""
        self.stop_listening()
        if self.locks.seal(_OTHERS):
            self.shared.destroy()
            run_files.clear(self.run_dir)
            _remove(self.locks, self.config, self.run_dir)
        self.locks.close()


def _remove(locks: RoleLocks, config: BrokerConfig, run_dir: Path) -> None:
    """Remove lock file and run directory. Caller has sealed the locks."""
    run_files.remove(run_dir, None if config.former_roles else locks)


def _give_up(error: OdradekError) -> None:
    raise error


def prepare(
    config: BrokerConfig, listen: bool = True, hold: Callable[[], None] = lambda: None,
    away: Callable[[OdradekError], None] = _give_up,
) -> Boot:  # fmt: skip
    """Take possession of the log directories; without `listen` another process opens the sockets. Raises BootError.

    `hold` is called after the last wait, before this creates anything that a death would leave behind.
    `away` is called when ZooKeeper gives no answer: it raises the error, or waits before the next try. The log
    directories stay locked meanwhile."""
    if line := machine_limits.too_few_files():
        raise BootError(line)
    for line in machine_limits.shortages():
        log.warning("%s", line)
    fault = _security_fault(config)
    if not config.clustered:
        _make_first_dir(config)
    run_dir, locks = _own(config)
    try:
        _note_run(config, locks, 0 if listen else None)
        _await_former_version(config)
        config, offline, configs = _identified(config, locks, away)
        config = _with_dynamic(config, configs, listen)
        if fault is not None:
            _check_security(config, configs)
        leftovers.sweep(run_dir)
    except BaseException:
        if locks.seal(_OTHERS):
            _remove(locks, config, run_dir)
        locks.close()
        raise
    hold()
    shared = _shared_memory(config, locks, run_dir, listen)
    for number in offline:
        shared.fail_dir(number)
    try:
        return _listen(config, run_dir, locks, shared, listen)
    except BaseException:
        Boot(config, run_dir, locks, shared, {}).leave()
        raise


def _security_fault(config: BrokerConfig) -> BootError | None:
    """Why listeners cannot be secured as the file says. Raises it unless dynamic configs may say better."""
    try:
        _check_security(config)
    except BootError as error:
        if not config.clustered and not os.path.exists(_metadata_file(config)):
            raise
        return error
    return None


def _check_security(config: BrokerConfig, configs: bytes | None = None) -> None:
    """Load each secured listener's certificates and mechanisms once, the exporter's too.

    Raises BootError with a line for each fault.

    `configs`: the dynamic ones. Those are not checked where the file says what works: the workers do, and refuse the
    connections of a listener until AlterConfigs mends it.
    """
    if set(config.protocols.values()) == {"PLAINTEXT"} and not listener_names.secured(config):
        return
    from odradek.broker.exporter.access import live_security
    from odradek.workers.authentication import listener_security

    settings = config.originals
    with suppress(MalformedNode):  # `_with_dynamic` reports it
        own = znodes.decode_config(configs)
        settings = dynamic_passwords.settings(settings, own, {}, dynamic_passwords.encoder_of(config))
    now = time.time()
    faults = [
        *listener_security.faults(config.protocols, config.between_brokers, settings, now),
        *live_security.faults(config, settings, now),
    ]
    if lines := faults or _faults_between_brokers(config, settings):
        raise BootError("\n".join(lines))


def _faults_between_brokers(config: BrokerConfig, settings: Mapping[str, str]) -> list[str]:
    """Why this broker could not connect to others with these settings; a standalone one does not."""
    from odradek.broker.interbroker.link_security import link_security

    try:
        security = link_security(config, settings) if config.clustered else None
        if security is not None:
            security.check()
    except ValueError as error:
        return [f"connections between brokers: {error}"]
    return []


def _own(config: BrokerConfig) -> tuple[Path, RoleLocks]:
    """Create the run directory, lock the supervisor's byte in it. Raises BootError when a broker has it."""
    while True:
        run_dir, locks = _with_lock_file(config)
        if locks.hold(roles.SUPERVISOR):
            return run_dir, locks
        if not _was_freed(locks):
            raise BootError(_second(config))
        locks.close()  # a broker has stopped just now, or another start has removed what a dead one left


def _with_lock_file(config: BrokerConfig) -> tuple[Path, RoleLocks]:
    """Create what is missing of the two. Tries again where another start has just removed the directory that a dead
    broker left; not for ever, as a link to nowhere looks the same."""
    deadline = time.monotonic() + DYING_TIMEOUT_S
    while True:
        try:
            return _run_dir(config), process.role_locks(config)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or time.monotonic() > deadline:
                raise BootError(f"{error.filename or config.run_dir}: {error.strerror}") from None
            time.sleep(_AGAIN_S)


def _was_freed(locks: RoleLocks) -> bool:
    """Whether the supervisor's byte is free soon, or the file gone. A removal of leftovers has it for a moment, and has
    SWEEP as long; that may be over by the time that this looks."""
    began = time.monotonic()

    def decided() -> bool:
        swept = locks.held(SWEEP) or time.monotonic() < began + _SWEEP_S
        return not locks.current() or not locks.held(roles.SUPERVISOR) or not swept

    process.wait_for(decided, DYING_TIMEOUT_S)
    return not locks.current() or not locks.held(roles.SUPERVISOR)


def _note_run(config: BrokerConfig, locks: RoleLocks, incarnation: int | None) -> None:
    """Say in the lock file what this broker will leave if it is killed (ipc.run_note). None: it leaves nothing to
    others, as systemd's units find the memory again. 0 keeps a former note, as its regions still exist."""
    with _boot_errors():
        if incarnation is None:
            locks.write_note(b"")
        elif incarnation or not _has_note(locks):
            key = rundir.broker_key(config.data_dir)
            locks.write_note(RunNote(boot_id.boot_id(), config.data_dir, key, incarnation, locks.file()).encode())


def _has_note(locks: RoleLocks) -> bool:
    """Whether a broker that died since the machine's boot has left a note."""
    former = run_note.decode(locks.note())
    return former is not None and (former.boot, former.file) == (boot_id.boot_id(), locks.file())


def _await_former_version(config: BrokerConfig) -> None:
    """Wait until no process of a broker of an earlier version is left here. Raises BootError."""
    path = os.path.join(config.data_dir, process.FORMER_LOCK)
    if not os.path.isfile(path):
        return
    try:
        former = RoleLocks(path)
    except OSError:  # its disk has failed: these processes are ignored, as the directory is
        return
    try:
        if not process.wait_for(lambda: not former.anyone(range(roles.ROLES)), DYING_TIMEOUT_S):
            raise BootError(_second(config))
    finally:
        former.close()


def again(config: BrokerConfig) -> Boot:
    """What `prepare` created in a process that has ended, after all others ended too. Raises OdradekError.

    A log directory that cannot be locked has failed, whatever its state was before."""
    with _boot_errors():
        locks = process.role_locks(config)
    if not process.wait_for(lambda: locks.hold(roles.SUPERVISOR), DYING_TIMEOUT_S):
        raise BootError(_second(config))
    try:
        shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    except RegionError as error:
        raise BootError(str(error)) from None
    kept = LogDirLocks(config.log_dirs, process.broker_number(config, locks), shared.failed_dirs())
    kept.turn()
    for number in kept.free:
        shared.fail_dir(number)
    return Boot(config, config.run_dir, locks, shared, {})


def _make_first_dir(config: BrokerConfig) -> None:
    """The first log directory holds the metadata of a standalone broker, which cannot run without it."""
    if os.path.lexists(config.data_dir) and not os.path.isdir(config.data_dir):
        raise BootError(f"log.dirs: {config.data_dir} {logdirs.NO_DIRECTORY}")
    try:
        os.makedirs(config.data_dir, exist_ok=True)
    except OSError as error:
        raise BootError(f"log.dirs: {config.data_dir}: {error.strerror}") from None
    if not os.access(config.data_dir, os.R_OK | os.W_OK | os.X_OK):
        raise BootError(f"log.dirs: {config.data_dir} cannot be written by this user")


@contextmanager
def _boot_errors() -> Iterator[None]:
    """Turn failures in the log directories into BootErrors."""
    try:
        yield
    except (logdirs.LogDirError, checkpoints.CheckpointError) as error:
        raise BootError(str(error)) from None
    except OSError as error:  # not every call names its file: a lock or a listing may fail without one
        raise BootError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None


def _identified(
    config: BrokerConfig, locks: RoleLocks, away: Callable[[OdradekError], None]
) -> tuple[BrokerConfig, list[int], bytes | None]:
    """Lock every log directory (its `.lock` stays locked until this process ends) and determine its broker.

    Also returns the indexes of offline ones, and the data of the broker's dynamic configs. broker.id -1 is the id that
    the directories have already, else 0: a standalone broker has no other to differ from."""
    found: list[logdirs.PartitionPlace] = []
    with _boot_errors():
        locked = logdirs.open_log_dirs(config.log_dirs, process.broker_number(config, locks))
        opened = [_scanned(one, config, found) for one in locked]
        logdirs.refuse_without_any(opened)
        logdirs.refuse_doubles(found)
        wanted, cluster, configs = _wanted_identity(config, opened, away)
        identity = logdirs.agree_on_identity(opened, wanted, cluster)
    offline = [number for number, log_dir in enumerate(opened) if log_dir.problem]
    if not config.clustered:
        configs = _stored(config, znodes.broker_config_path(identity.node_id))
    return config.with_value("broker.id", identity.node_id), offline, configs


def _with_dynamic(config: BrokerConfig, configs: bytes | None, listen: bool) -> BrokerConfig:
    """The configuration with the listeners that the broker's dynamic configs set; as in the file if they cannot be.

    Without `listen` systemd has the sockets: it listens as the file says.
    """
    try:
        changed = config.with_dynamic(znodes.decode_config(configs))
    except (ListenerError, MalformedNode) as error:
        log.error("ignoring the dynamic configs of the listeners: %s", error)
        return config
    if not listen and changed.listeners != config.listeners:
        log.error("ignoring the dynamic config listeners: odradek.socket has the sockets; remove it")
        return config
    return changed


def _scanned(log_dir: logdirs.LogDir, config: BrokerConfig, found: list[logdirs.PartitionPlace]) -> logdirs.LogDir:
    """The log directory, offline if its disk cannot be read; adds its partitions to `found`.

    Refuses directories with sub-directories that are not partitions.
    """
    if not log_dir.problem:
        try:
            _make_room(str(log_dir.path), config["odradek.disk.reserve.bytes"])
            with suppress(FileNotFoundError):
                Path(log_dir.path, checkpoints.META_PROPERTIES).read_bytes()
            found += logdirs.partitions_in(log_dir.path)
        except OSError as error:
            log_dir = log_dir._replace(problem=f"it cannot be read: {error.strerror or error}")
    if log_dir.problem:
        log.error("log directory %s is offline: %s", log_dir.path, log_dir.problem)
    return log_dir


def _wanted_identity(
    config: BrokerConfig, opened: list[logdirs.LogDir], away: Callable[[OdradekError], None]
) -> _Wanted:
    """Broker id and cluster id, as far as configuration, cluster or metadata give them; dynamic configs of a member."""
    broker_id, former = config["broker.id"], _former_id(opened)
    if config.clustered:
        return _settled(config, former, _cluster_of(opened), away)
    return (broker_id if broker_id >= 0 else former or 0), _former_cluster(config, opened), None


def _settled(
    config: BrokerConfig, former: int | None, cluster: str | None, away: Callable[[OdradekError], None]
) -> _Wanted:
    """The ids and the dynamic configs as settled with ZooKeeper."""
    from odradek.broker.interbroker import zookeeper_session

    while True:
        try:
            return zookeeper_session.settle(config, former, cluster)
        except BootError:
            raise
        except OdradekError as error:
            away(error)


def _make_room(log_dir: str, reserve: int) -> None:
    """Release the reserve when the disk is full: a start needs space."""
    released = Reserve(log_dir, reserve).free_if_needed()
    if released:
        log.warning("disk of %s is full: released its reserve of %d bytes to start", log_dir, released)


def _former_id(opened: list[logdirs.LogDir]) -> int | None:
    metas = (logdirs.identity(one.path) for one in opened if not one.problem)
    return next((meta.node_id for meta in metas if meta and meta.node_id is not None), None)


def _cluster_of(opened: list[logdirs.LogDir]) -> str | None:
    metas = (logdirs.identity(one.path) for one in opened if not one.problem)
    return next((meta.cluster_id for meta in metas if meta and meta.cluster_id), None)


def _former_cluster(config: BrokerConfig, opened: list[logdirs.LogDir]) -> str | None:
    """The cluster id in the embedded metadata, if no meta.properties is left."""
    if any(logdirs.identity(one.path) for one in opened if not one.problem):
        return None
    stored = _stored(config, znodes.CLUSTER_ID)
    return znodes.decode_cluster_id(stored) if stored else None


def _stored(config: BrokerConfig, path: str) -> bytes | None:
    """The data of a node in the embedded metadata."""
    from odradek.cluster.tree import embedded

    return embedded.peek(_metadata_file(config), path)


def _metadata_file(config: BrokerConfig) -> str:
    from odradek.cluster.tree import embedded

    return os.path.join(config.data_dir, embedded.FILE_NAME)


def _second(config: BrokerConfig) -> str:
    return (
        f"a broker is running already on {config.data_dir}: `odradek stop` stops it, `--override log.dirs=…` starts "
        "another one elsewhere"
    )


def _run_dir(config: BrokerConfig) -> Path:
    """Raises FileNotFoundError when another process removes it meanwhile."""
    try:
        return rundir.make_run_dir(config.run_dir)
    except FileNotFoundError:
        raise
    except (OSError, rundir.RunDirError) as error:
        raise BootError(str(error)) from None


def _shared_memory(config: BrokerConfig, locks: RoleLocks, run_dir: Path, listen: bool) -> Shared:
    """New shared memory when no process of a former run lives; otherwise that of the live processes.

    Waits a little first, as the children of a killed supervisor are dying themselves."""
    alone = process.wait_for(lambda: not locks.anyone(_OTHERS), DYING_TIMEOUT_S)
    try:
        if alone:
            run_files.clear(run_dir)
            return _new_memory(config, locks, listen)
        log.warning("found running processes of this broker: joining them")
        return Shared.attach(rundir.shm_prefix(config.data_dir))
    except SharedMemoryFull:
        raise BootError(shm_room.full(config)) from None
    except RegionError as error:
        raise BootError(str(error)) from None


def _new_memory(config: BrokerConfig, locks: RoleLocks, listen: bool) -> Shared:
    """Replace the regions of a former run. The note names the new ones before they exist, when the former are gone."""
    prefix, incarnation = rundir.shm_prefix(config.data_dir), time.time_ns()
    region.unlink_all(prefix)
    shm_room.check(config)
    if listen:
        _note_run(config, locks, incarnation)
    shared = Shared.create(prefix, incarnation, config["odradek.partition.slots"])
    quotas.create(prefix, incarnation, Rate.size(quota_windows.client_window(config)))
    return shared


def _take_mark(shared: Shared, number: int, log_dir: str) -> bool:
    """Whether the former run shut down cleanly in a log directory. Removes the mark now, as this run may die.

    A directory whose mark cannot be removed durably is offline, as in Kafka: the next start would trust whatever this
    run leaves. An offline directory keeps its mark, as nothing changes there.
    """
    if number in shared.failed_dirs():
        return False
    try:
        return checkpoints.consume_clean_shutdown(log_dir)
    except OSError as error:
        log.error(
            "log directory %s is offline: cannot remove %s: %s", log_dir, checkpoints.CLEAN_SHUTDOWN, error.strerror
        )
        shared.fail_dir(number)
        return False


def _listen(config: BrokerConfig, run_dir: Path, locks: RoleLocks, shared: Shared, listen: bool) -> Boot:
    listening: dict[str, socket.socket] = {}
    if listen and not locks.alive(roles.ACCEPTOR):  # a separately started one has its own sockets
        config, listening = _bind(config)
        config = config.with_ports(sockets.bound_ports(listening))
    config = config.with_clean([_take_mark(shared, *place) for place in enumerate(config.log_dirs)])
    config.save(run_dir)
    return Boot(config, run_dir, locks, shared, listening)


def _bind(config: BrokerConfig) -> tuple[BrokerConfig, dict[str, socket.socket]]:
    """Bind all listeners. Raises BootError, unless it is about one that a dynamic config added: then it is left out.

    The broker serves without it, so that its dynamic configs can be changed; the controller process tries again. It
    does not serve without the inter-broker listener.
    """
    how = sockets.backlog(config), sockets.receive_buffer(config)
    static = config.with_dynamic({}).listeners if config.dynamic else config.listeners
    added = [endpoint for endpoint in config.listeners if endpoint not in static]
    listening = sockets.open_all([endpoint for endpoint in config.listeners if endpoint in static], *how)
    for endpoint in added:
        try:
            listening |= sockets.open_all([endpoint], *how)
        except BootError as error:
            if endpoint.name == config.between_brokers:
                raise
            log.error("not listening on %s, a dynamic config of this broker: %s", endpoint.name, error)
            config = config.without_listener(endpoint.name)
    return config, listening
