"""Add charts of end-to-end latency and lag to locust's own, on its web page and in its report.

Our charts go into the list of its page's script (chart_script), and their values into the history and responses that
feed the others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gevent
import locust.stats

from odradek.loadtest.swarm import metrics
from odradek.loadtest.swarm.chart_script import PERCENTILES, into_script

if TYPE_CHECKING:
    from flask import Flask, Response

EVERY_SECONDS = 2
_OURS = {
    "end_to_end": (metrics.END_TO_END, metrics.CONSUME),
    "lag": (metrics.BEHIND, metrics.LAG),
}


def choose() -> None:
    """Set percentiles that matter for a broker, and a history fine enough for a run of a minute."""
    locust.stats.PERCENTILES_TO_CHART = list(PERCENTILES)
    locust.stats.PERCENTILES_TO_STATISTICS = [0.99, 0.999]
    locust.stats.HISTORY_STATS_INTERVAL_SEC = EVERY_SECONDS


def now(stats: Any) -> dict[str, float]:
    """The latest value of each of our lines."""
    lines = {}
    for name, place in _OURS.items():
        entry = stats.entries.get(place)
        for percentile in PERCENTILES:
            value = entry.get_current_response_time_percentile(percentile) if entry else None
            lines[f"{name}_{percentile}"] = value or 0
    return lines


def keep_history(runner: Any) -> None:
    """Add our lines to each point of locust's history, from which the report draws; never returns."""
    while True:
        history = runner.stats.history
        if history and f"lag_{PERCENTILES[0]}" not in history[-1]:
            history[-1].update({line: [history[-1]["time"], value] for line, value in now(runner.stats).items()})
        gevent.sleep(EVERY_SECONDS / 4)


def into_page(web_ui: Any, runner: Any) -> None:
    """Put our charts and their values into the web page's responses."""
    from flask import request

    app: Flask = web_ui.app

    @app.after_request
    def extend(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            answer = response.get_json()
            answer.setdefault("current_response_time_percentiles", {}).update(now(runner.stats))
            response.set_data(json.dumps(answer))
        elif request.path.endswith(".js") or request.path.endswith("/stats/report"):
            response.direct_passthrough = False
            response.set_data(into_script(response.get_data(as_text=True)))
        return response
