"""A broker of the installed wheel takes a record and gives it back: `python - VERSION < .ci/release_check.py`."""

import subprocess
import sys

from kafka import KafkaConsumer, KafkaProducer

import odradek

said = subprocess.run(["odradek", "--version"], capture_output=True, text=True, check=True).stdout
assert said == f"odradek {sys.argv[1]}\n", said
with odradek.Broker() as broker:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send("released", b"a record").get(timeout=30)
    producer.close()
    consumer = KafkaConsumer("released", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    assert next(consumer).value == b"a record"
    consumer.close()
