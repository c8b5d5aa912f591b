"""The tables of `odradek top`, from two samples of the broker. Rates are those between the samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from odradek.broker.commands.top.rows import Column, Table, numbers, short, words
from odradek.broker.exporter.group_lag import Lag
from odradek.broker.exporter.growth import growth
from odradek.broker.exporter.scrape import ProcessSample, Sample
from odradek.broker.findings.findings import Finding
from odradek.ipc import slots
from odradek.ipc.processes import RETIRED

LogSize = Callable[[str, int, int], int]
_STATES = ("free", "recovering", "leader", "follower", "offline", "deleting")


def head(former: Sample, now: Sample, seconds: float) -> str:
    """The line about the whole broker."""
    rate = {name: max(0, now.total(name) - former.total(name)) / seconds for name in _TOTALS}
    role = ", the controller" if now.is_controller else ""
    return (
        f"broker {now.broker}{role}: {short(rate['requests'])} requests/s, {short(rate['messages_in'])} records/s in, "
        f"{short(rate['bytes_in'])}B/s in, {short(rate['bytes_out'])}B/s out"
    )


_TOTALS = ("requests", "messages_in", "bytes_in", "bytes_out")


def wrong(found: Sequence[Finding]) -> Table:
    """What is wrong, each with a row that says what mends it."""
    rows = [text for at, one in enumerate(found, 1) for text in (f"{at} {one.text}", f"{at}   to do: {one.mend}")]
    return Table("wrong", rows)


def processes(former: Sample, now: Sample, seconds: float) -> Table:
    """One row a process."""
    before = {one.name: one for one in former.processes}
    rows = [one for one in now.processes if one.state != RETIRED]
    pairs = [(before.get(one.name, one), one) for one in rows]

    def rate(title: str, counter: str) -> Column:
        values = [max(0, int(b.counters[counter]) - int(a.counters[counter])) / seconds for a, b in pairs]
        return numbers(title, 7, values, short)

    return Table(
        "processes",
        [one.name for one in rows],
        [
            words("STATE", 8, [one.state for one in rows]),
            numbers("CPU%", 5, [_cpu(a, b, seconds) for a, b in pairs], "{:.0f}".format),
            numbers("MEMORY", 7, [one.rss for one in rows], short),
            numbers("CONN", 6, [int(one.counters["connections"]) if one.alive else 0 for one in rows], short),
            rate("REQ/S", "requests"),
            rate("IN B/S", "bytes_in"),
            rate("OUT B/S", "bytes_out"),
            rate("ERR/S", "errors"),
            numbers("FILES", 6, [one.files for one in rows], short),
        ],
    )


def _cpu(former: ProcessSample, now: ProcessSample, seconds: float) -> float:
    return max(0.0, now.cpu_s - former.cpu_s) / seconds * 100


def partitions(former: Sample, now: Sample, seconds: float, log_size: LogSize) -> tuple[Table, Table]:
    """A row a topic, and a row a partition."""
    names = now.layout.names
    records, size = (each.tolist() for each in growth(former, now, seconds))
    kept = (now.column(slots.F_LEO) - now.column(slots.F_LOG_START)).tolist()
    lacking = now.under_replicated.tolist()
    dirs = now.column(slots.F_LOG_DIR).tolist()
    states = [_STATES[state] for state in now.column(slots.F_STATE).tolist()]
    isr = list(zip(now.layout.isr.tolist(), now.layout.replicas.tolist(), strict=True))
    of_partitions = [
        words("STATE", 10, states),
        numbers("LEADER", 6, now.layout.leaders.tolist(), "{:.0f}".format),
        Column("ISR", 5, [b - a for a, b in isr], lambda row: f"{isr[row][0]}/{isr[row][1]}{'!' * lacking[row]}"),
        numbers("REC/S", 7, records, short),
        numbers("IN B/S", 7, size, short),
        numbers("RECORDS", 8, kept, short),
        Column("SIZE", 7, None, lambda row: short(log_size(*names[row], dirs[row]))),
    ]
    offline = [state == "offline" for state in states]
    led = [state == "leader" for state in states]
    sums = _by_topic(names, [[1] * len(names), led, lacking, offline, records, size, kept])
    titles = (("PARTS", 6), ("LED", 6), ("UNDER", 6), ("OFFLINE", 7), ("REC/S", 7), ("IN B/S", 7), ("RECORDS", 8))
    columns = [[row[at] for row in sums.values()] for at in range(len(titles))]
    of_topics = [numbers(*title, values, short) for title, values in zip(titles, columns, strict=True)]
    return (
        Table("topics", list(sums), of_topics),
        Table("partitions", [f"{topic}-{index}" for topic, index in names], of_partitions),
    )


def _by_topic(names: Sequence[tuple[str, int]], columns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (topic, _), row in zip(names, zip(*columns, strict=True), strict=True):
        known = found.get(topic)
        found[topic] = list(row) if known is None else [a + b for a, b in zip(known, row, strict=True)]
    return found


def groups(sample: Sample) -> Table:
    """A row a group that this broker coordinates; its lag where the partitions are here too."""
    lags: dict[str, list[Lag]] = defaultdict(list)
    for one in sample.lags:
        lags[one.group].append(one)
    names = sorted({*lags, *sample.members})
    worst = [max(lags[name], key=lambda one: one.records or 0, default=None) for name in names]
    return Table(
        "groups",
        names,
        [
            numbers("MEMBERS", 7, [sample.members.get(name, 0) for name in names], short),
            numbers("PARTS", 6, [len(lags[name]) for name in names], short),
            numbers("LAG", 8, [sum(one.records or 0 for one in lags[name]) for name in names], short),
            numbers("LAG S", 8, [max((one.seconds or 0 for one in lags[name]), default=0) for name in names], short),
            words("FARTHEST BEHIND", 24, ["" if one is None else f"{one.topic}-{one.partition}" for one in worst]),
        ],
    )


def clients(found: Counter[tuple[str, str]]) -> Table:
    """A row for each address and process."""
    rows = list(found.items())
    return Table(
        "clients",
        [address for (address, _), _ in rows],
        [words("PROCESS", 12, [name for (_, name), _ in rows]), numbers("CONN", 7, [many for _, many in rows], short)],
    )
