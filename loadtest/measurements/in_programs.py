"""What Odradek costs inside a Python program: the start of a `Broker`, and a record of `logging` to a topic.

Each round is a program of its own, as a test run or a service is. A start runs from `Broker().start()` to the first
Metadata response, without the import of `odradek`; memory is counted once that is there. The log handler has to wait
for its queue, so that it drops nothing, and time runs until the broker has acknowledged all. A FileHandler, with the
same formatter, is the comparison.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import Broker, Odradek
from odradek.loadtest.harness.load_clients import LoadError
from odradek.loadtest.harness.processes import cpu_seconds, family, memory
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say
from odradek.loadtest.measurements.curves import Bench

START, LOG = "inside", "log-handler"
KEYS = (START, LOG)
ODRADEK, KAFKA_HANDLER, FILE_HANDLER = "Odradek", "odradek.logging.KafkaHandler", "logging.FileHandler"
RECORDS = 100_000
TOPIC = "program-log"
SECONDS = 600
_WAITING, _LOOK = 5000, 500  # records: half the handler's queue; and between two looks at it

Found = dict[str, float]


def measure(kinds: Sequence[type[Broker]], key: str, bench: Bench) -> Entry:
    """All rounds, after one that does not count."""
    return {START: _starts, LOG: _handlers}[key](bench)


def _starts(bench: Bench) -> Entry:
    entry = Entry({ODRADEK: []}, bench.rounds, bench.scale)
    for turn in range(bench.rounds + 1):
        found = _program("start")
        say(f"{START} {turn or 'warm-up'}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
        if turn:
            entry.data[ODRADEK].append(found)
    return entry


def _handlers(bench: Bench) -> Entry:
    entry, records = Entry({}, bench.rounds, bench.scale), max(1000, round(RECORDS * bench.scale))
    with bench.started(Odradek, LOG) as broker:
        broker.create(TOPIC)
        file = str(bench.folder / f"{LOG}.txt")
        for turn in range(bench.rounds + 1):
            for name, place in ((KAFKA_HANDLER, broker.bootstrap), (FILE_HANDLER, file)):
                before = broker.cpu()
                found = _program(name, place, str(records))
                found["broker_cpu"] = broker.cpu() - before
                say(
                    f"{LOG} {turn or 'warm-up'}: {name} {found['rate']:,.0f} records/s, {found['client_cpu']:.2f} CPU s"
                )
                if turn:
                    entry.data.setdefault(name, []).append(found)
        Path(file).unlink()
    return entry


def _program(*words: str) -> Found:
    command = [sys.executable, "-m", "odradek.loadtest.measurements.in_programs", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise LoadError(f"{words[0]}: {done.stderr[-2000:]}")
    found: Found = json.loads(done.stdout)
    return found


# -- the programs


def start() -> Found:
    """Start a broker with its defaults; the wall time and CPU of the broker in seconds, its memory in MiB."""
    from odradek.inside.broker import Broker

    broker, began = Broker(), time.monotonic()
    with broker:
        wire.metadata(int(broker.bootstrap.rpartition(":")[2]))
        seconds, processes = time.monotonic() - began, family(psutil.Process(broker.pid))
        return {"seconds": seconds, "cpu": cpu_seconds(processes), "pss": memory(processes).pss}


def log_to_topic(bootstrap: str, records: int) -> Found:
    """Log through KafkaHandler. LoadError when it dropped a record."""
    from odradek.loghandler.handler import KafkaHandler

    handler = KafkaHandler(bootstrap, TOPIC)

    def room() -> None:
        while handler.counters()["waiting"] > _WAITING:
            time.sleep(0.001)

    found = _logged(handler, records, room)
    if (sent := handler.counters()["sent"]) != records:
        raise LoadError(f"{sent} records were sent, not {records}")
    handler.close()
    return found


def log_to_file(path: str, records: int) -> Found:
    """Log through FileHandler, as the same JSON."""
    from odradek.loghandler.json_formatter import JsonFormatter

    handler = logging.FileHandler(path, mode="w")
    handler.setFormatter(JsonFormatter())
    found = _logged(handler, records, lambda: None)
    handler.close()
    return found


def _logged(handler: logging.Handler, records: int, room: Callable[[], None]) -> Found:
    log = logging.getLogger("program")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    process = psutil.Process()
    cpu, began = cpu_seconds([process]), time.monotonic()
    for number in range(records):
        log.info("order %d of %s is paid", number, "ann")
        if not number % _LOOK:
            room()
    handler.flush()
    seconds = time.monotonic() - began
    log.removeHandler(handler)
    return {"rate": records / seconds, "seconds": seconds, "client_cpu": cpu_seconds([process]) - cpu}


def main() -> None:
    """Run one program, and print what it found."""
    what, *rest = sys.argv[1:]
    if what == "start":
        found = start()
    else:
        found = {KAFKA_HANDLER: log_to_topic, FILE_HANDLER: log_to_file}[what](rest[0], int(rest[1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
