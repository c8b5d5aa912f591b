"""One Spark session for all tests of a run: it takes five seconds and 600 MB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.session import activate, session

from ..harness import java
from ..harness.needs import connector_jars, missing, skip
from ..harness.registry import SchemaRegistry
from .spark_settings import LOCAL, all_settings, end_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "127.0.0.1"


@pytest.fixture(scope="session", autouse=True)
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The temporary folder of Java and Spark, also for drivers in their own processes: killed ones leave files there.
    spark-submit starts all of these drivers and reads the environment.
    """
    folder = str(tmp_path_factory.mktemp("spark"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_LOCAL_DIRS", folder)
        patched.setenv("SPARK_SUBMIT_OPTS", java.spark_options(f"-Djava.io.tmpdir={folder}"))
        yield folder


@pytest.fixture(scope="session")
def spark(room: str) -> Iterator[SparkSession]:
    """Spark on two cores, with its own Kafka connector if it was fetched. Skips without Java.

    Java ends when its stdin, a pipe from this process, closes: also when the test run is killed.
    """
    if why := missing("java"):
        skip(why)
    made = session("tests", **_settings(room))
    yield made
    made.stop()
    end_java()


@pytest.fixture(scope="module")
def registry(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A schema registry that keeps its schemas in a topic of the broker. Skips if no registry was fetched."""
    if why := missing("schema-registry"):
        skip(why)
    with SchemaRegistry(tmp_path_factory.mktemp("registry"), broker.bootstrap) as running:
        yield running


@pytest.fixture(autouse=True)
def active(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reconnect the thread to Java, whatever a former test did with the connection; restore the settings afterwards:
    a job's command that runs in this process changes the settings of the shared session.
    """
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    activate(spark)
    with all_settings(spark):
        yield


def _settings(room: str) -> dict[str, str]:
    return {
        **LOCAL,
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.warehouse.dir": f"{room}/warehouse",
    }
