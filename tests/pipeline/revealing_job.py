"""A session that shows as much as possible while its clients' settings have secrets: see `test_secrets`.

python -m … BOOTSTRAP TOPIC FOLDER URL

URL is a registry that requires USER; FOLDER/events is Spark's event log, plans and pages are the session's output.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive import job, latest
from odradek.pipeline.jobs.archive.formats.formats import Format, Formats
from odradek.pipeline.jobs.archive.job import Job
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.registry.settings import Registry
from odradek.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRETS = ("JaasSecret1", "KeySecret2", "PassSecret3", "ChainSecret4", "RegistrySecret5")
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRETS[0]}";'
KAFKA = {
    "kafka.sasl.jaas.config": JAAS,
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.ssl.keystore.type": "PEM",
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{SECRETS[1]}\n-----END PRIVATE KEY-----",
    "kafka.ssl.key.password": SECRETS[2],
    "kafka.ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE-----\n{SECRETS[3]}\n-----END CERTIFICATE-----",
}
"""Settings of a plaintext connection, which ignores them."""
USER = f"ann:{SECRETS[4]}"
PAGES = ("environment", "executors?", "jobs?", "stages?details=true", "sql?details=true&planDescription=true")


def main(bootstrap: str, topic: str, folder: str, url: str) -> None:
    root = Path(folder)
    for name in ("events", "plans", "pages"):
        (root / name).mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{root}/events", "spark.master": "local[1]"}
    conf["spark.eventLog.compress"] = "false"
    own = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m", "spark.ui.enabled": "true"}
    spark = session("revealing", **conf, **own)
    options = {**KAFKA, "kafka.bootstrap.servers": bootstrap}
    show(spark.read.format("odradek").options(**options, subscribe=topic).load(), root / "plans/read")
    written(spark, options, topic)
    streamed(spark, options, topic, root)
    failed(spark, options)
    archived(spark, options, topic, root, url)
    page(spark, root / "pages")
    spark.stop()


def show(frame: DataFrame, path: Path) -> None:
    """Write all plans of the frame, and run it."""
    with path.open("w") as file, redirect_stdout(file):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
        print(repr(frame), frame._jdf.queryExecution().toString())
    frame.collect()


def written(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    rows = spark.createDataFrame([("v",)], "value string")
    rows.write.format("odradek").mode("append").options(**options, topic=topic).save()


def streamed(spark: SparkSession, options: dict[str, str], topic: str, root: Path) -> None:
    rows = spark.readStream.format("odradek").options(**options, subscribe=topic, startingOffsets="earliest").load()
    sink = rows.selectExpr("value").writeStream.format("odradek").options(**options, topic=topic)
    query = sink.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    streaming: Any = query
    with (root / "plans/stream").open("w") as file, redirect_stdout(file):
        streaming.explain(True)
        print(query.lastProgress, query.status)


def failed(spark: SparkSession, options: dict[str, str]) -> None:
    """Print the errors of a wrong option and of a missing topic."""
    for wrong in ({"subscribe": "no-such-topic"}, {"subscribe": "a", "odradek.local": "maybe"}, {}):
        try:
            spark.read.format("odradek").options(**options, **wrong).load().collect()
        except Exception as error:
            print(error)


def archived(spark: SparkSession, options: dict[str, str], topic: str, root: Path, url: str) -> None:
    """Archive with a registry's schema and show the plan; print the error of a wrong user."""
    for user in (USER, f"bob:{SECRETS[4]}"):
        formats = Formats({}, {"": Format("avro-registry", registry=Registry(url, (("basic.auth.user.info", user),)))})
        wanted = Job({**options, "subscribe": topic}, Columns(formats))
        try:
            job.run(spark, Files(spark, f"{root}/archive"), wanted)
        except PipelineError as error:
            print(error)
    with Store(Files(spark, f"{root}/planned")) as store:
        columns = Columns(latest.of(formats.with_settings((("basic.auth.user.info", USER),)), spark, store))
        read = spark.read.format("odradek").options(**options, subscribe=topic, includeHeaders="true").load()
        show(columns.of(read, [topic])[0], root / "plans/archive")


def page(spark: SparkSession, folder: Path) -> None:
    """Fetch the pages of the UI and of its REST API."""
    root = spark.sparkContext.uiWebUrl
    app = spark.sparkContext.applicationId
    for number, name in enumerate(PAGES):
        fetch(f"{root}/api/v1/applications/{app}/{name}", folder / f"api-{number}")
    for name in ("environment/", "jobs/", "StreamingQuery/", "SQL/", *(f"SQL/execution/?id={at}" for at in range(6))):
        fetch(f"{root}/{name}", folder / name.replace("/", "-"))


def fetch(url: str, path: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            path.write_bytes(answer.read())
    except urllib.error.HTTPError as error:  # the execution does not exist
        path.write_bytes(error.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
