"""Events as lines of JSON, as Kafka's verifiable producer and consumer print them."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import click

_lock = threading.Lock()  # a producer's callbacks print from its own thread


def emit(name: str, **fields: Any) -> None:
    """Print one event with the time."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    with _lock:
        click.echo(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
