"""What is wrong with a broker, worst first, and the setting or the command that mends it: a function of its facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from odradek.broker.findings.facts import Affected, DirFacts, Facts, ProcessFacts

ERROR, WARNING = "error", "warning"  # clients notice it; they will when it goes on

RESTARTED_S = 600  # a process that has started again within this time is worth a look
FILES_SHARE = 0.8
DISK_SHARE, DISK_SHARE_ERROR = 0.10, 0.02  # free
SHM_SHARE = 0.10  # free
CERTIFICATE_DAYS, CERTIFICATE_DAYS_ERROR = 30, 7
_LOG = "see its log (odradek.log.file, else journalctl)"


class Finding(NamedTuple):
    """One thing that is wrong. `name` is the same for all findings of its kind."""

    name: str
    severity: str
    text: str
    mend: str

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return self._asdict()


def find(facts: Facts) -> list[Finding]:
    """All findings: first errors, then warnings, each in the order of the rules."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda one: one.severity != ERROR)


def lines(found: Sequence[Finding]) -> list[str]:
    """The findings as text: for each a line that says what is wrong, and one that says what to do."""
    if not found:
        return ["nothing is wrong"]
    return [line for one in found for line in (f"{one.severity.upper()}: {one.text}", f"  to do: {one.mend}")]


def summary(found: Sequence[Finding]) -> str:
    """One line: the worst finding, and how many more there are."""
    if not found:
        return "nothing is wrong"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0].severity.upper()}: {found[0].text}{more}"


# -- processes


def _stopping(facts: Facts) -> Iterator[Finding]:
    if facts.is_stopping:
        yield Finding("stopping", ERROR, "the broker is stopping", "wait for its end, then start it: odradek start")


def _serving(facts: Facts) -> Iterator[Finding]:
    if not facts.not_serving or facts.is_stopping:
        return
    text = f"the broker serves no clients: {facts.not_serving}"
    if facts.recovering:
        yield Finding("not_serving", ERROR, text, f"wait until {_count(facts.recovering, 'log')} are recovered")
    elif facts.starting:
        yield Finding("not_serving", ERROR, text, f"wait for {', '.join(facts.starting)}; if it lasts, {_LOG}")
    else:
        yield Finding("not_serving", ERROR, text, _LOG)


def _dead_processes(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        if not one.is_alive and not (facts.is_stopping or one.is_retired or _is_behind(one, facts.processes)):
            yield Finding("process_dead", ERROR, f"{one.name} does not run", f"it is started again; if not, {_LOG}")


def _is_behind(process: ProcessFacts, processes: Sequence[ProcessFacts]) -> bool:
    """Whether it is a worker behind the last that lives: `odradek scale` retires the highest numbers first, and a
    supervisor of an earlier version does not note it."""
    later = processes[processes.index(process) :]
    return process.is_worker and not any(one.is_alive for one in later)


def _restarted_processes(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        if one.is_alive and one.restarts > 0 and one.up_s < RESTARTED_S:
            text = f"{one.name} ended and was started again, last {one.up_s:.0f} s ago (restarts: {one.restarts})"
            yield Finding("process_restarted", WARNING, text, f"find out why it ended: {_LOG}")


def _files(facts: Facts) -> Iterator[Finding]:
    for one in facts.processes:
        if one.files_limit and one.files >= FILES_SHARE * one.files_limit:
            text = f"{one.name} has {one.files:,} of {one.files_limit:,} file descriptors open"
            yield Finding(
                "files", WARNING, text, "raise LimitNOFILE= of the unit or `ulimit -n`, and restart the broker"
            )


# -- partitions


def _offline(facts: Facts) -> Iterator[Finding]:
    mend = "mend its log directory or its log (odradek check), and restart the broker"
    yield from _partitions("offline", ERROR, facts.offline, "offline here", mend)


def _leaderless(facts: Facts) -> Iterator[Finding]:
    mend = f"start {_brokers(facts.leaderless)}; or lose records: odradek leader-election --election-type unclean"
    yield from _partitions("leaderless", ERROR, facts.leaderless, "without a leader", mend)


def _under_min_isr(facts: Facts) -> Iterator[Finding]:
    mend = f"{_bring_back(facts.under_min_isr)}, or lower min.insync.replicas"
    text = "with fewer replicas in sync than min.insync.replicas: acks=all is refused"
    yield from _partitions("under_min_isr", ERROR, facts.under_min_isr, text, mend)


def _at_min_isr(facts: Facts) -> Iterator[Finding]:
    text = "where acks=all is refused if one more replica fails"
    yield from _partitions("at_min_isr", WARNING, facts.at_min_isr, text, _bring_back(facts.at_min_isr))


def _under_replicated(facts: Facts) -> Iterator[Finding]:
    mend = _bring_back(facts.under_replicated)
    yield from _partitions("under_replicated", WARNING, facts.under_replicated, "under-replicated", mend)


def _bring_back(affected: Affected) -> str:
    if not affected.brokers:
        return "add replicas: odradek reassign-partitions"
    return f"look at {_brokers(affected)}: odradek status --cluster"


def _brokers(affected: Affected) -> str:
    if not affected.brokers:
        return "the brokers of their replicas"
    return f"broker{'s' * (len(affected.brokers) > 1)} {', '.join(map(str, affected.brokers))}"


def _partitions(name: str, severity: str, affected: Affected, fault: str, mend: str) -> Iterator[Finding]:
    if affected.count:
        more = f" and {affected.count - len(affected.names):,} more" if affected.count > len(affected.names) else ""
        text = f"{_count(affected.count, 'partition')} {fault}: {', '.join(affected.names)}{more}"
        yield Finding(name, severity, text, mend)


# -- disks


def _failed_dirs(facts: Facts) -> Iterator[Finding]:
    for one in facts.dirs:
        if one.has_failed:
            text = f"log directory {one.path} has failed, and its partitions are offline"
            yield Finding("log_dir_failed", ERROR, text, "mend or replace its disk, and restart the broker")


def _full_dirs(facts: Facts) -> Iterator[Finding]:
    mend = "set odradek.retention.free.bytes, lower retention.bytes or retention.ms, or move partitions to others"
    for one in facts.dirs:
        if not one.has_failed and _is_nearly_full(one, facts.keep_free):
            severity = ERROR if one.free < DISK_SHARE_ERROR * one.size else WARNING
            text = f"the disk of {one.path} is nearly full: {_gib(one.free)} of {_gib(one.size)} are free"
            yield Finding("disk_nearly_full", severity, text, mend)


def _is_nearly_full(folder: DirFacts, keep_free: int) -> bool:
    """With odradek.retention.free.bytes the disk is always as full as that allows."""
    return folder.size > 0 and folder.free < (keep_free or DISK_SHARE * folder.size)


def _shm(facts: Facts) -> Iterator[Finding]:
    if facts.shm is not None and facts.shm.free < SHM_SHARE * facts.shm.size:
        text = f"{facts.shm.path} is nearly full: {_gib(facts.shm.free)} of {_gib(facts.shm.size)} are free"
        yield Finding("shm_nearly_full", WARNING, text, f"mount -o remount,size=SIZE {facts.shm.path}")


# -- the surroundings


def _zookeeper(facts: Facts) -> Iterator[Finding]:
    if facts.zookeeper_lost_s is not None:
        text = f"no connection to ZooKeeper since {facts.zookeeper_lost_s:.0f} s: no metadata can change"
        yield Finding("zookeeper_lost", ERROR, text, f"start it, or correct zookeeper.connect={facts.zookeeper}")


def _certificate(facts: Facts) -> Iterator[Finding]:
    days = facts.certificate_days
    if days is not None and days < CERTIFICATE_DAYS:
        severity = ERROR if days < CERTIFICATE_DAYS_ERROR else WARNING
        when = "has expired" if days < 0 else f"expires in {days:.0f} days"
        yield Finding("certificate", severity, f"a certificate of the listeners {when}", "odradek tls renew")


def _retention(facts: Facts) -> Iterator[Finding]:
    if facts.retention_unknown:
        text = f"retention unknown, so nothing is deleted: {', '.join(facts.retention_unknown)}"
        yield Finding("retention_unknown", WARNING, text, "odradek configs --alter, or odradek adopt --defaults")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _stopping,
    _serving,
    _failed_dirs,
    _offline,
    _leaderless,
    _under_min_isr,
    _zookeeper,
    _full_dirs,
    _dead_processes,
    _certificate,
    _at_min_isr,
    _under_replicated,
    _restarted_processes,
    _files,
    _shm,
    _retention,
)
