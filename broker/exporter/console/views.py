"""What the console shows of a moment to a reader: functions that return what becomes JSON.

Describe on a topic or a group shows all of it but records and configs. Describe on the cluster shows the processes,
disks and loads of the broker, the listeners of all brokers, and what is wrong, which names topics and groups. The
brokers are shown to each reader without listeners: Kafka's Metadata has them for each client, with one address alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.broker.exporter.access.reader import EVERYONE, Reader
from odradek.broker.exporter.access.refused import Refused
from odradek.broker.exporter.console import paging
from odradek.broker.exporter.console.moments import Moment
from odradek.broker.exporter.console.paging import Query
from odradek.broker.exporter.group_lag import Lag
from odradek.broker.exporter.scrape import ProcessSample
from odradek.ipc import slots
from odradek.ipc.processes import RETIRED
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, GROUP, TOPIC

Json = dict[str, Any]
_STATES = ("free", "recovering", "leader", "follower", "offline", "deleting")
_OF_CLUSTER = "what is wrong, processes, disks and listeners"
_RATES = ("requests", "messages_in", "bytes_in", "bytes_out", "errors")


def overview(moment: Moment, reader: Reader = EVERYONE) -> Json:
    """What is wrong first; then the broker, its processes, disks and the brokers of the cluster.

    `needs`: the line that says what is not shown; then there are no rates.
    """
    sample, snapshot = moment.sample, moment.sample.snapshot
    sees = reader.sees(DESCRIBE, CLUSTER)
    return {
        "broker": sample.broker,
        "user": reader.user,
        "cluster_id": snapshot.cluster_id,
        "controller": snapshot.controller_id,
        "needs": "" if sees else f"Not shown: {reader.needs(_OF_CLUSTER, DESCRIBE, CLUSTER)}",
        "topics": len(_visible(moment, reader)),
        "brokers": _brokers(moment, sees),
        **(_broker(moment) if sees else {"findings": [], "processes": [], "disks": []}),
    }


def _broker(moment: Moment) -> Json:
    sample = moment.sample
    return {
        "findings": [one.as_json() for one in moment.findings],
        "partitions_here": len(sample.layout.names),
        "rates": _rates(moment),
        "processes": _processes(moment),
        "disks": [{"path": path, "size": disk[0], "free": disk[1]} for path, disk in sample.disks.items()],
    }


def _visible(moment: Moment, reader: Reader) -> Sequence[int]:
    """The numbers of the topics that the reader may see."""
    names = moment.index.names
    if reader.sees_all:
        return range(len(names))
    return [row for row, name in enumerate(names) if reader.sees(DESCRIBE, TOPIC, name)]


def _rates(moment: Moment) -> Json:
    totals = {name: moment.sample.total(name) - moment.former.total(name) for name in _RATES}
    return {name: max(0, grown) / moment.seconds for name, grown in totals.items()}


def _processes(moment: Moment) -> list[Json]:
    before = {one.name: one for one in moment.former.processes}
    living = [one for one in moment.sample.processes if one.state != RETIRED]
    return [_process(before.get(one.name, one), one, moment.seconds) for one in living]


def _process(former: ProcessSample, now: ProcessSample, seconds: float) -> Json:
    grown = {name: int(now.counters[name]) - int(former.counters[name]) for name in _RATES}
    return {
        "name": now.name,
        "state": now.state,
        "starts": int(now.counters["starts"]),
        "cpu": max(0.0, now.cpu_s - former.cpu_s) / seconds,
        "memory": now.rss,
        "files": now.files,
        "connections": int(now.counters["connections"]) if now.alive else 0,
        **{name: max(0, value) / seconds for name, value in grown.items()},
    }


def _brokers(moment: Moment, sees: bool) -> list[Json]:
    snapshot = moment.sample.snapshot
    return [
        {
            "id": one.id,
            "rack": one.rack,
            "is_controller": one.id == snapshot.controller_id,
            "is_this": one.id == moment.sample.broker,
            "listeners": [f"{name}://{host}:{port}" for name, (host, port) in one.endpoints.items()] if sees else [],
        }
        for one in snapshot.brokers.values()
    ]


def topics(moment: Moment, query: Query, reader: Reader = EVERYONE) -> Json:
    """A page of topics: what of them is on this broker."""
    columns = moment.topics
    names = moment.index.names
    found = paging.chosen(query, names, {"name": names, **columns})
    visible = found if reader.sees_all else [row for row in found if reader.sees(DESCRIBE, TOPIC, names[row])]
    about, rows = paging.page(query, visible)
    return {
        **about,
        "sizes_known": moment.sample.log_bytes is not None,
        "rows": [{"name": names[row], **{key: values[row] for key, values in columns.items()}} for row in rows],
    }


def topic(moment: Moment, name: str, query: Query, reader: Reader = EVERYONE) -> Json:
    """A page of the partitions of one topic, and what its configs override, None if they are not shown.

    Raises Refused.
    """
    reader.require("this topic", DESCRIBE, TOPIC, name)
    known = moment.sample.snapshot.topics.get(name)
    if known is None:
        raise Refused(404, f"there is no topic {name!r}: look for it in the list of topics")
    about, rows = paging.page(query, range(len(known)))
    here = _here(moment, name)
    found = [_partition(moment, name, index, here.get(index)) for index in rows]
    config = known.config if reader.sees(DESCRIBE_CONFIGS, TOPIC, name) else None
    return {**about, "name": name, "config": config, "internal": known.internal, "rows": found}


def _here(moment: Moment, name: str) -> dict[int, int]:
    """Of the partitions on this broker: index to position in the layout."""
    names = moment.sample.layout.names
    return {names[at][1]: at for at in moment.index.of_topic(moment.index.number[name])}


def _partition(moment: Moment, name: str, index: int, at: int | None) -> Json:
    info = moment.sample.snapshot.topics[name].partition(index)
    assert info is not None
    shared = {"partition": index, "leader": info.leader, "replicas": info.replicas, "isr": info.isr}
    return {**shared, "state": "elsewhere"} if at is None else {**shared, **_numbers(moment, at)}


def _numbers(moment: Moment, at: int) -> Json:
    sample = moment.sample
    fields = sample.fields[at].tolist()
    records, size = moment.growth
    return {
        "state": _STATES[fields[slots.F_STATE]],
        "start": fields[slots.F_LOG_START],
        "end": fields[slots.F_HW],
        "bytes": None if sample.log_bytes is None else int(sample.log_bytes[at]),
        "records_s": float(records[at]),
        "bytes_s": float(size[at]),
    }


def groups(moment: Moment, query: Query, reader: Reader = EVERYONE) -> Json:
    """A page of the groups that this broker coordinates."""
    names = [name for name in moment.lags if reader.sees(DESCRIBE, GROUP, name)]
    columns = _group_columns(moment, names, reader)
    about, rows = paging.page(query, paging.chosen(query, names, {"name": names, **columns}))
    return {
        **about,
        "rows": [{"name": names[row], **{key: values[row] for key, values in columns.items()}} for row in rows],
    }


def _lags(moment: Moment, group: str, reader: Reader) -> Sequence[Lag]:
    """Of the topics that the reader may see, as in Kafka's OffsetFetch."""
    lags = moment.lags[group]
    return lags if reader.sees_all else [one for one in lags if reader.sees(DESCRIBE, TOPIC, one.topic)]


def _group_columns(moment: Moment, names: Sequence[str], reader: Reader) -> Mapping[str, Sequence[Any]]:
    lags = [_lags(moment, name, reader) for name in names]
    worst = [max(each, key=lambda one: one.records or 0, default=None) for each in lags]
    return {
        "members": [moment.sample.members.get(name, 0) for name in names],
        "partitions": [len(each) for each in lags],
        "lag": [sum(one.records or 0 for one in each) for each in lags],
        "lag_s": [max((one.seconds or 0.0 for one in each), default=0.0) for each in lags],
        "farthest": ["" if one is None else f"{one.topic}-{one.partition}" for one in worst],
    }


def group(moment: Moment, name: str, query: Query, reader: Reader = EVERYONE) -> Json:
    """A page of the partitions of one group. Raises Refused."""
    reader.require("this group", DESCRIBE, GROUP, name)
    if name not in moment.lags:
        raise Refused(404, f"this broker does not coordinate a group {name!r}: ask the console of another broker")
    lags = _lags(moment, name, reader)
    ordered = sorted(lags, key=lambda one: (-(one.records or 0), one.topic, one.partition))
    about, rows = paging.page(query, range(len(ordered)))
    total = sum(one.records or 0 for one in lags)
    members = moment.sample.members.get(name, 0)
    return {**about, "name": name, "members": members, "lag": total, "rows": [_lag(ordered[row]) for row in rows]}


def _lag(one: Lag) -> Json:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "lag": one.records,
        "lag_s": one.seconds,
    }
