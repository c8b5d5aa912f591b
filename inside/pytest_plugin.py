"""Fixtures for pytest: `kafka_broker`, a real broker; `kafka_topic`, a new topic of it for one test, and
`kafka_prefix`, for topics that a program creates; `kafka_cluster`, three brokers.

The broker is started with its first use, and lives as long as the option `--kafka-broker-scope` says. With pytest-xdist
each worker has its own, or with `--kafka-broker-shared` all workers use one, which the controller of the run starts. A
test with the marker `kafka_broker` gets a broker with these settings.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.errors import OdradekError
from odradek.inside.platforms import MISSING
from odradek.inside.running import RunningBroker

if TYPE_CHECKING:  # on other systems than Linux, tests without these fixtures run too
    from odradek.inside.broker import Broker
    from odradek.inside.cluster import Cluster

LIKE = ("3.9", "4.1")
SCOPES = ("session", "package", "module", "class", "function")
_MARKERS = (
    "kafka_broker(settings): the test's broker has these settings, a dict of Kafka's names; a marker closer to the test"
    " overrides single settings",
    "kafka_cluster(brokers=3, settings=None): how many brokers the test's cluster has, and the settings of all of them",
    "kafka_topic(partitions=1, configs=None, name=None): the topic that the fixture kafka_topic creates; without a name"
    " it has one of its own",
)
_LINES = 100  # of the log, in the report of a failed test
_LONGEST = 200  # characters of a test's name in the name of its topic; Kafka allows 249
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]+")
_INPUT = "odradek_kafka_broker"  # of xdist's workers
_SHARED = pytest.StashKey[RunningBroker]()
_LIVING = pytest.StashKey[list[RunningBroker]]()
_BEGUN = pytest.StashKey[dict[RunningBroker, int]]()  # of a test: what each log had before it
_PARAMETERS = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line, and the same in the configuration file with `_` for `-`."""
    group = parser.getgroup("kafka", "Kafka brokers for tests (odradek)")
    group.addoption("--kafka-broker-scope", choices=SCOPES, help="how long one broker lives (default: session)")
    group.addoption(
        "--kafka-broker-shared", action="store_true", help="with pytest-xdist: one broker for all workers, not one each"
    )
    group.addoption(
        "--kafka-version-like", choices=LIKE, help="brokers offer only the API versions that this Apache Kafka offers"
    )
    parser.addini("kafka_version_like", f"offer only the API versions of Apache Kafka {' or '.join(LIKE)}", default="")
    parser.addini("kafka_broker_scope", f"how long one broker lives: {', '.join(SCOPES)}", default="session")
    parser.addini("kafka_broker_shared", "with pytest-xdist: one broker for all workers", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; in a worker of xdist, find the shared broker."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    config.stash[_LIVING], config.stash[_PARAMETERS] = [], {}
    _check(config)
    shared = getattr(config, "workerinput", {}).get(_INPUT)
    if shared is not None:
        config.stash[_SHARED] = RunningBroker(shared["bootstrap"], Path(shared["log_file"]))
        config.stash[_LIVING].append(config.stash[_SHARED])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller of xdist: start the shared broker with the first worker."""
    config: pytest.Config = node.config
    if not _is_shared(config) or sys.platform != "linux":
        return
    if _SHARED not in config.stash:
        from odradek.inside.broker import Broker

        broker = Broker(_like(config)).start()
        config.add_cleanup(broker.stop)
        config.stash[_SHARED] = broker
    shared = config.stash[_SHARED]
    node.workerinput[_INPUT] = {"bootstrap": shared.bootstrap, "log_file": str(shared.log_file)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the fixtures the settings of a marked test."""
    mark = metafunc.definition.get_closest_marker("kafka_cluster")
    if mark is not None and "kafka_cluster" in metafunc.fixturenames:
        _parametrize(metafunc, "kafka_cluster", _cluster_options(mark))
    marks = list(metafunc.definition.iter_markers("kafka_broker"))
    if not marks or "kafka_broker" not in metafunc.fixturenames:
        return
    settings: dict[str, Any] = {}
    for mark in reversed(marks):
        settings |= _settings(mark)
    _parametrize(metafunc, "kafka_broker", settings)


def _parametrize(metafunc: pytest.Metafunc, fixture: str, options: dict[str, Any]) -> None:
    name = ",".join(f"{key}={options[key]}" for key in sorted(options))
    # The same object for the same options: pytest keeps a fixture only while its parameter is that object.
    one = metafunc.config.stash[_PARAMETERS].setdefault(f"{fixture}:{name}", options)
    metafunc.parametrize(fixture, [one], ids=[name], indirect=True)


def _cluster_options(mark: pytest.Mark) -> dict[str, Any]:
    """The brokers' number as `brokers`, and their settings."""
    given = {"brokers": mark.args[0]} if len(mark.args) == 1 else {}
    given |= mark.kwargs
    settings = given.pop("settings", None) or {}
    if len(mark.args) > 1 or given.keys() - {"brokers"} or not isinstance(settings, Mapping):
        pytest.fail('write pytest.mark.kafka_cluster(brokers=3, settings={"num.partitions": 3})', pytrace=False)
    return {"brokers": 3, **given, **settings}


def _settings(mark: pytest.Mark) -> Mapping[str, Any]:
    if mark.kwargs or len(mark.args) != 1 or not isinstance(mark.args[0], Mapping):
        pytest.fail('write pytest.mark.kafka_broker({"num.partitions": 3}), with the names of Kafka', pytrace=False)
    return mark.args[0]


def _check(config: pytest.Config) -> None:
    scope = _scope("kafka_broker", config)
    if scope not in SCOPES:
        raise pytest.UsageError(f"kafka_broker_scope is {scope!r}: it may be {', '.join(SCOPES)}")
    if config.getini("kafka_version_like") not in ("", *LIKE):
        raise pytest.UsageError(
            f"kafka_version_like is {config.getini('kafka_version_like')!r}: it may be {', '.join(LIKE)}"
        )
    if _is_shared(config) and scope != "session":
        raise pytest.UsageError(f"--kafka-broker-shared needs the scope session, not {scope}: remove one of the two")


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getoption("kafka_broker_scope") or config.getini("kafka_broker_scope")


def _like(config: pytest.Config) -> dict[str, Any]:
    """The settings that limit API versions."""
    like = config.getoption("kafka_version_like") or config.getini("kafka_version_like")
    return {"odradek.api.versions.like": like} if like else {}


def _is_shared(config: pytest.Config) -> bool:
    return bool(config.getoption("kafka_broker_shared") or config.getini("kafka_broker_shared"))


@pytest.fixture(scope=_scope)
def _kafka_broker_without_settings(_linux: None, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """The broker of all tests without the marker. It lives on while a test with the marker has another one."""
    shared = request.config.stash.get(_SHARED, None)
    if shared is not None:
        yield shared
    else:
        yield from _started(request.config, {})


@pytest.fixture(scope=_scope)
def kafka_broker(_linux: None, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A Kafka broker on 127.0.0.1: `kafka_broker.bootstrap` is its `host:port`. It is an `odradek.Broker`, except under
    `--kafka-broker-shared`, where a test cannot stop or kill it."""
    settings = getattr(request, "param", None)
    if settings is None:
        yield request.getfixturevalue("_kafka_broker_without_settings")
    else:
        yield from _started(request.config, settings)


@pytest.fixture(scope="session")
def _linux() -> None:
    if sys.platform != "linux":
        pytest.fail(f"a Kafka broker needs Linux: {MISSING}", pytrace=False)


def _started(config: pytest.Config, settings: Mapping[str, Any]) -> Iterator[Broker]:
    from odradek.inside.broker import Broker

    with Broker({**_like(config), **settings}) as broker:
        config.stash[_LIVING].append(broker)
        yield broker
        config.stash[_LIVING].remove(broker)


@pytest.fixture(scope=_scope)
def kafka_cluster(_linux: None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers, `kafka_cluster.brokers`, and a ZooKeeper; `kafka_cluster.bootstrap` has all addresses. The test is
    skipped where Java or ZooKeeper's jars are missing."""
    from odradek.inside.cluster import Cluster, needs_java  # with click and threads, which few tests need

    try:
        needs_java()
    except OdradekError as error:
        pytest.skip(str(error))
    settings = dict(getattr(request, "param", {}))
    with Cluster(settings.pop("brokers", 3), {**_like(request.config), **settings}) as cluster:
        request.config.stash[_LIVING] += cluster.brokers
        yield cluster
        request.config.stash[_LIVING] = [one for one in request.config.stash[_LIVING] if one not in cluster.brokers]


@pytest.fixture
def kafka_prefix(request: pytest.FixtureRequest, kafka_broker: RunningBroker) -> Iterator[str]:
    """A prefix that no other test has, for the names of topics that the test, or the program under test, creates; these
    topics are deleted after the test."""
    prefix = f"{_name_after(request, _LONGEST // 2)}-"
    yield prefix
    with suppress(OdradekError, OSError):  # the test has stopped the broker
        kafka_broker.delete_topics(prefix)


def _name_after(request: pytest.FixtureRequest, longest: int = _LONGEST) -> str:
    """A name that is not used, from that of the test, in Kafka's characters."""
    return f"{_FORBIDDEN.sub('-', request.node.name)[:longest].strip('-.')}-{secrets.token_hex(4)}"


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: RunningBroker) -> Iterator[str]:
    """The name of a new topic, after the test's name unless the marker has another; deleted after the test."""
    mark = request.node.get_closest_marker("kafka_topic")
    given = {} if mark is None else dict(mark.kwargs)
    name = given.pop("name", "") or _name_after(request)
    kafka_broker.create_topic(name, *(() if mark is None else mark.args), **given)
    yield name
    with suppress(OdradekError, OSError):  # the test has deleted it, or has stopped the broker
        kafka_broker.delete_topic(name)


# -- the log of the broker in the report of a failed test


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where each log ends, so that a report has only what a test adds."""
    item.stash[_BEGUN] = {broker: broker.log_size() for broker in item.config.stash[_LIVING]}


@pytest.hookimpl(hookwrapper=True)  # the newer `wrapper` is an error in pytest 7, which may be there without the extra
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the logs of the test's brokers."""
    report = (yield).get_result()
    for name, broker in _brokers_of(item) if report.failed else ():
        lines = broker.log_since(item.stash.get(_BEGUN, {}).get(broker, 0)).splitlines()
        if lines:
            report.sections.append((f"log of {name}, when {report.when} failed", "\n".join(lines[-_LINES:])))


def _brokers_of(item: pytest.Item) -> Iterator[tuple[str, RunningBroker]]:
    """Those that a test uses, named."""
    fixtures = getattr(item, "funcargs", {})
    if isinstance(broker := fixtures.get("kafka_broker"), RunningBroker):
        yield "the Kafka broker", broker
    for number, broker in enumerate(getattr(fixtures.get("kafka_cluster"), "brokers", ())):
        yield f"Kafka broker {number}", broker
