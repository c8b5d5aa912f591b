"""Spark's own connector and our source write to and read from a secured broker, by every mechanism they support.

A usual run tests one mechanism each; the others are long. Other clients: tests/workers/authentication/test_clients.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.errors import OptionError
from odradek.pipeline.wire.settings import Settings

from ..clients.admin import create_topic
from ..workers.authentication import client_settings
from ..workers.authentication.client_settings import Way
from ..workers.authentication.secured_broker import SecuredBroker
from ..workers.authentication.test_clients import TOKENS, WAYS
from .frames import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USUAL = {"kafka": Way("SSL"), "odradek": Way("SASL_SSL", "SCRAM-SHA-512")}
SENT = [str(number) for number in range(50)]


def ways(source: str) -> list[Way]:
    """Our source supports neither bearer tokens nor delegation tokens."""
    if source == "odradek":
        return [way for way in WAYS if way.mechanism != "OAUTHBEARER"]
    return [*WAYS, *TOKENS]


def cases() -> Iterator[Any]:
    """Each source with each mechanism."""
    for source, usual in USUAL.items():
        tool = [pytest.mark.needs("spark-connector")] if source == "kafka" else []
        for way in ways(source):
            marks = tool if way == usual else [*tool, pytest.mark.long]
            yield pytest.param(source, way, marks=marks, id=f"{source}-{way}")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker.of_every_mechanism(tmp_path_factory.mktemp("secured"))
    try:
        yield made.start()  # type: ignore[misc]  # start() returns a Broker
    finally:
        made.close()


@pytest.mark.live
@pytest.mark.parametrize(("source", "way"), [*cases()])
def test_spark_writes_and_reads_with_every_mechanism(
    spark: SparkSession, secured: SecuredBroker, source: str, way: Way
) -> None:
    topic = create_topic(secured, "t")
    assert secured.delegation_token
    allow(spark, client_settings.token_url(secured))
    options = {f"kafka.{key}": value for key, value in client_settings.java(secured, way).items()}
    options["kafka.bootstrap.servers"] = secured.address(way.protocol)
    since = len(secured.log)
    frame = spark.range(0, len(SENT), numPartitions=1).selectExpr("string(id) as value")
    frame.write.format(source).mode("append").options(**options, topic=topic).save()
    more = {} if source == "kafka" else {"odradek.local": "off"}
    assert values(spark.read.format(source).options(**options, **more, subscribe=topic).load()) == SENT
    found = [line for line in secured.log[since:].splitlines() if ": authenticated as " in line]
    assert found
    assert all(line.endswith(f"{way.protocol}): authenticated as {way.principal}") for line in found), found


def allow(spark: SparkSession, url: str) -> None:
    """Let Java's clients fetch bearer tokens from this URL."""
    java: Any = spark.sparkContext._jvm
    java.java.lang.System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url)


def test_delegation_token_is_refused_with_a_hint() -> None:
    """Sent as a password, it would fail like a wrong password."""
    line = 'x required username="id" password="hmac" tokenauth=true;'
    kafka = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    with pytest.raises(OptionError, match=r'tokenauth=true.* use format\("kafka"\)'):
        Settings.of({"bootstrap.servers": "h:1", **kafka})
