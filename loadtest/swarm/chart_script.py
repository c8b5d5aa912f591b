"""Our charts in the script of locust's page and report, as text; independent of locust, which its callers patch.

Locust draws three charts, listed in the script of its page. A release of locust with another list shows only its own
charts; a test detects that.
"""

from __future__ import annotations

import json
import re

PERCENTILES = (0.5, 0.99)
_TITLES = {
    "Total Requests per Second": "Records acknowledged per second",
    "Response Times (ms)": "Produce ack latency (ms)",
}
_TITLE = re.compile(r"(\{title:[\"`])(" + "|".join(map(re.escape, _TITLES)) + ")")
_LAST = re.compile(r"\{title:([\"`])Number of Users\1")
_CHARTS = [
    ("End-to-end latency, send to read (ms)", "endToEnd", ["#ff9f00", "#9966CC"]),
    ("Lag of a group (records)", "lag", ["#ff9f00", "#9966CC"]),
]


def into_script(text: str) -> str:
    """`text`, a page or script of locust, with our charts before its last and with Kafka's terms in the titles."""
    text = _TITLE.sub(lambda found: found[1] + _TITLES[found[2]], text)
    return _LAST.sub(lambda found: ",".join(map(_chart, _CHARTS)) + "," + found[0], text)


def _chart(chart: tuple[str, str, list[str]]) -> str:
    title, key, colors = chart
    lines = [{"name": f"{percentile * 100:g}th percentile", "key": f"{key}{percentile}"} for percentile in PERCENTILES]
    return json.dumps({"title": title, "lines": lines, "colors": colors})
