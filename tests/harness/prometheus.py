"""A real Prometheus server (Debian's package prometheus) that scrapes exporters each second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from .process import free_port
from .serving import serving


class Prometheus:
    """A context manager over an existing folder; job `odradek` has the `targets`. The process dies with the run."""

    def __init__(self, folder: Path, targets: Sequence[str], rules: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._stack = ExitStack()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "odradek", "static_configs": [{"targets": list(targets)}]}],
            "rule_files": [str(rules)],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Prometheus:
        words = [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self._stack.enter_context(serving(words, self._folder / "prometheus.log", self._is_ready, 60))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _is_ready(self) -> bool:
        with urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)

    def ask(self, name: str, **parameters: object) -> Any:
        """The data of an answer of the HTTP API, as `query_range` or `rules`; an OSError with what it refuses."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{name}?{urlencode(parameters)}"
        with urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]
