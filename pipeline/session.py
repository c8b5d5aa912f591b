"""The Spark session of a job: on this machine's cores unless a master is given, in UTC, quiet, with `odradek`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline import java
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.writing.cutting import ADAPTIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J2 = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(name: str, **conf: str) -> SparkSession:
    """The session of application `name`; starts one if this process has none.

    `conf` are Spark's settings (`**{"spark.master": "local[2]"}`). Where neither they nor spark-submit nor Spark's own
    files name a master, Spark uses `local[*]`. Driver and workers use this Python, unless PYSPARK_PYTHON in the
    environment names the workers' Python. PipelineError where there is no Java, and for Spark Connect.
    """
    from pyspark.sql import SparkSession

    _refuse_connect(conf)
    _environment()
    builder = SparkSession.builder.appName(name)
    for key, value in _settings(conf).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    _register(made)
    return made


def _refuse_connect(conf: Mapping[str, str]) -> None:
    """The jobs need parts of Spark's driver that Spark Connect does not offer, such as Hadoop's file systems."""
    remote = conf.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    mode = conf.get("spark.api.mode") or os.environ.get("SPARK_API_MODE") or "classic"
    if remote or mode != "classic" or conf.get("spark.master", "").startswith("sc://"):
        raise PipelineError(
            "jobs do not run on Spark Connect: leave out spark.remote, spark.api.mode, SPARK_REMOTE and "
            "SPARK_API_MODE, and give the cluster's own URL as --master (spark://…, yarn, k8s://…)"
        )


def _environment() -> None:
    """Set what Spark reads from the environment when it starts; under spark-submit Java already runs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    home = java.home()
    if home:
        os.environ["JAVA_HOME"] = str(home)


def logging_as(file: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """`conf` plus `file` as Java's logging configuration; Java options in `conf` come later, so they win."""
    options = f'"-Dlog4j2.configurationFile={file}" {conf.get(_JAVA_OPTIONS, "")}'
    return {**conf, _JAVA_OPTIONS: options.rstrip()}


def _settings(conf: Mapping[str, str]) -> dict[str, str]:
    return {
        ADAPTIVE: "false",  # a repeated batch must have the same tasks
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        **logging_as(_LOG4J2, conf),
    }


def _register(made: SparkSession) -> None:
    from odradek.pipeline.source import OdradekDataSource

    made.dataSource.register(OdradekDataSource)
    activate(made)


def activate(made: SparkSession) -> None:
    """Make the session's data sources visible to this thread.

    Spark looks for them in the thread's active session. A thread has none after Python reconnects to Java, as it does
    after a signal.
    """
    jvm: Any = made._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(made._jsparkSession)
