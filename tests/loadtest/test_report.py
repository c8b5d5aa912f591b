"""The report's arithmetic, on synthetic figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from odradek.loadtest.bench import attempt, chosen_keys, chosen_kinds
from odradek.loadtest.harness.load_clients import Call, Cost, LoadError
from odradek.loadtest.harness.store import Entry, Results, load, save
from odradek.loadtest.measurements.rows import ROWS, Row
from odradek.loadtest.measurements.tables import CONFLUENT, FILES, WIRE
from odradek.loadtest.profile import hottest
from odradek.loadtest.reports.report import markdown
from odradek.loadtest.reports.report_compaction import compaction_section
from odradek.loadtest.reports.report_curves import draw, growth, told
from odradek.loadtest.reports.report_parquet import parquet_section
from odradek.loadtest.reports.report_record_looks import record_looks_section
from odradek.loadtest.reports.report_rows import missed, ratio, summary, table, verdict
from odradek.loadtest.reports.report_starts import recovery_section, starts_section
from odradek.loadtest.reports.report_tables import tables_section

KAFKA, ODRADEK = "Apache Kafka", "Odradek"


def row(key: str) -> Row:
    return next(one for one in ROWS if one.key == key)


def results(key: str, kafka: list[Cost], odradek: list[Cost]) -> Results:
    data = {KAFKA: kafka, ODRADEK: odradek}
    return Results({key: Entry({name: [cost.as_dict() for cost in costs] for name, costs in data.items() if costs}, 5)})


def cost(rate: float = 1000, cpu_us: float = 10, p99: float = 0, size: int = 200) -> Cost:
    return Cost(1000, size, 1000 / rate, cpu_us * 1000 / 1e6, 0, p99=p99)


def test_cost_is_per_message() -> None:
    found = Cost(messages=1_000_000, size=1000, seconds=4, broker_cpu=2.5, client_cpu=1)
    assert (found.rate, found.cpu_us, found.cpu_per_gb) == (250_000, 2.5, 2.5)


@pytest.mark.live
def test_ratio_is_of_medians() -> None:
    many = [cost(cpu_us=value) for value in (1, 9, 2)]
    few = [cost(cpu_us=value) for value in (0.1, 0.9, 0.2)]
    assert ratio(results("batch1", many, few), "batch1", "cpu_us") == pytest.approx(0.1)


@pytest.mark.live
def test_no_ratio_without_kafka() -> None:
    alone = results("batch1", [], [cost()])
    assert ratio(alone, "batch1", "rate") is None
    assert missed(alone, row("batch1")) is None
    assert verdict(alone, row("batch1")) == "–"
    assert "1,0" in table(alone) or "1.0 k" in table(alone)


@pytest.mark.live
@pytest.mark.parametrize(
    ("ours", "lacks"),
    [
        (cost(60_000, 2), []),
        (cost(49_000, 2), ["msg/s"]),  # four times Kafka's rate, but below the absolute target
        (cost(60_000, 2.1), ["CPU"]),
        (cost(39_000, 2.1), ["msg/s", "CPU"]),
    ],
)
def test_missed_targets_are_named(ours: Cost, lacks: list[str]) -> None:
    assert missed(results("batch1", [cost(10_000, 12)], [ours]), row("batch1")) == lacks


@pytest.mark.live
def test_cores_of_the_client_are_reported_where_the_rate_is_missed() -> None:
    busy = replace(cost(20_000), client_cpu=0.05)  # of 50 ms
    assert "missed: batch1 1.00." in markdown(results("batch1", [cost(10_000)], [busy]))
    assert "Cores that the client" not in markdown(results("batch1", [cost(10_000, 12)], [cost(60_000, 2)]))


@pytest.mark.live
@pytest.mark.parametrize(("p99", "word"), [(70, "met"), (71, "MISSED: p99")])
def test_latency_is_judged(p99: float, word: str) -> None:
    made = results("tail1", [cost(p99=100)], [cost(cpu_us=5, p99=p99)])
    assert verdict(made, row("tail1")) == word
    assert summary(made).startswith("1 rows met" if word == "met" else "0 rows met, 1 missed: tail1 (p99)")


@pytest.mark.live
def test_large_messages_are_reported_in_bytes() -> None:
    made = results("full", [cost(size=1000)], [cost(rate=2000, size=1000)])
    assert "2 MB/s, 10.00 CPU s/GB" in table(made)


@pytest.mark.live
def test_report_combines_several_runs(tmp_path: Path) -> None:
    made = results("one", [cost()], [cost()])
    made.entries["one"] = replace(made.entries["one"], date="2026-11-01 10:00", commit="abc")
    save(made, tmp_path / "results.json")
    again = load(tmp_path / "results.json")
    again.entries["five"] = Entry(made.entries["one"].data, 5, date="2026-11-02 10:00", commit="def")
    save(again, tmp_path / "results.json")
    text = markdown(load(tmp_path / "results.json"))
    assert "2026-11-01, commit abc, 5 rounds: one" in text
    assert "2026-11-02, commit def, 5 rounds: five" in text
    assert text.index("… five in flight") < text.index("… one in flight")


@pytest.mark.live
def test_report_without_results_is_written(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json").entries == {}
    assert "| work |" in markdown(Results())


def starts(kafka: float, odradek: float, seconds: float) -> Results:
    def one(mib: float) -> dict[str, float]:
        memory = {f"{when}_{what}": mib for when in ("idle", "loaded") for what in ("pss", "rss")}
        return {"clean": seconds, "killed": 0.5, **memory}

    return Results({"start1": Entry({KAFKA: [one(kafka)], ODRADEK: [one(odradek)]}, 1)})


@pytest.mark.live
def test_start_up_time_and_memory_are_judged() -> None:
    assert "MISSED" not in starts_section(starts(600, 100, 1.0))
    text = starts_section(starts(600, 150, 1.1))
    assert "Start-up ≤ 1 s: MISSED" in text
    assert "idle ≤ 0.33 of Kafka's: 0.25, met" in text
    assert "loaded ≤ 0.17 of Kafka's: 0.25, MISSED" in text
    assert starts_section(Results()) == ""


@pytest.mark.live
@pytest.mark.parametrize(("seconds", "word"), [(5.0, "0.50, met"), (5.2, "0.52, MISSED")])
def test_recovery_is_judged(seconds: float, word: str) -> None:
    data = {"Apache Kafka": [{"seconds": 10.0, "cpu": 15.0}], "Odradek": [{"seconds": seconds, "cpu": 7.0}]}
    text = recovery_section(Results({"recovery": Entry(data, 1)}))
    assert f"Time ≤ 0.5 of Kafka's: {word}." in text
    assert f"| Odradek | {seconds:.1f} s | 7.0 CPU s |" in text
    assert recovery_section(Results()) == ""


def points(*costs: float) -> list[dict[str, float]]:
    return [{"x": 10.0**at, "cpu_us": each, "rate": 1e6 / each, "p50": 1, "p99": each} for at, each in enumerate(costs)]


CURVES: list[tuple[str, dict[str, Any], str]] = [
    (
        "partitions",
        {"all": points(10, 9, 12), "one": points(10, 9, 12.5)},
        "all 1.20× (met; 1.33× over the second), one 1.25× (MISSED; ",
    ),
    (
        "cold",
        {"tail p99": points(100, 150, 190, 150)},
        "1.9× the p99 of the tail alone (≤ 2): met. With a reader that",
    ),
    (
        "cold",
        {"tail p99": points(100, 150, 210, 140)},
        "2.1× the p99 of the tail alone (≤ 2): MISSED. With a reader that another broker serves on the same cores, it "
        "is 1.4×; the share of this broker is 1.5×.",
    ),
    ("workers", {"20 partitions": points(10, 5), "one partition": points(10, 11)}, "2.00× the requests"),
    ("workers", {"20 partitions": points(10, 5), "one partition": points(10, 12.1)}, "CPU ≤ 1.2×: MISSED"),
]


@pytest.mark.parametrize(
    ("key", "curve", "words"), CURVES, ids=["flat", "cold-met", "cold-missed", "workers", "contention"]
)
def test_curves_are_judged(key: str, curve: dict[str, Any], words: str) -> None:
    assert words in told(key, {ODRADEK: curve})
    assert told(key, {KAFKA: curve}) == ""


def test_growth_compares_the_last_point_with_the_first() -> None:
    assert growth(points(10, 90, 15)) == 1.5


@pytest.mark.live
def test_curves_are_drawn(tmp_path: Path) -> None:
    made = Results({"partitions": Entry({ODRADEK: {"all": points(1, 2, 3)}}, 1)})
    assert draw(made, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not draw(Results(), tmp_path / "none.png")


def test_scaled_load_keeps_its_rate_and_lasts_a_second() -> None:
    call = Call("raw", "tail", {"messages": 10_000, "seconds": 5, "rate": 2000}).scaled(0.1)
    assert call.numbers == {"messages": 1000, "seconds": 1, "rate": 2000}


def test_rows_and_brokers_are_chosen_by_name() -> None:
    assert chosen_keys("consume,batch1") == ["batch1", "consume"]
    assert chosen_keys("start,partitions") == ["start1", "start1000", "partitions"]
    assert chosen_keys("")[0] == "batch1"
    assert [kind.key for kind in chosen_kinds("odradek,kafka")] == ["kafka", "odradek"]
    with pytest.raises(click.BadParameter):
        chosen_kinds("pulsar")


@pytest.mark.live
def test_failed_row_keeps_its_former_figures() -> None:
    def fails() -> Entry:
        raise LoadError("lost a message")

    made = results("one", [cost()], [cost()])
    assert not attempt("one", fails, made)
    assert made.failed == ["one"]
    assert "one" in made.entries  # the former figures remain
    assert attempt("five", lambda: Entry({}, 1), made)


def test_hottest_function_is_the_first() -> None:
    stacks = (
        "main (a.py:1);loop (a.py:9);recv (b.py:3) 5\nmain (a.py:1);loop (a.py:9) 2\nother (c.py:1);recv (b.py:3) 4\n"
    )
    assert hottest(stacks).most_common() == [("recv (b.py:3)", 9), ("loop (a.py:9)", 2)]


@pytest.mark.live
def test_parquet_rates_are_compared_with_the_connector_on_kafka() -> None:
    rates = {"odradek, files, direct": 2e6, "odradek, wire, direct": 9e5, "kafka, on Apache Kafka": 1e6}
    data = {name: [{"rate": rate, "jvm_us": 1.5, "python_us": 0.5, "broker_us": 0.25}] for name, rate in rates.items()}
    told = parquet_section(Results({"parquet-200b": Entry(data, 1)}))
    assert "| odradek, files, direct | 2,000 k | 400 | 1.50 µs | 0.50 µs | 0.25 µs | 2.00 |" in told
    assert "odradek, files, direct ≥ 2×: met. odradek, wire, direct ≥ 1×: MISSED." in told
    assert parquet_section(Results()) == ""


@pytest.mark.live
def test_parquet_rates_without_kafka_are_not_judged() -> None:
    data = {"odradek, files, direct": [{"rate": 2e6, "jvm_us": 1.5, "python_us": 0.5, "broker_us": 0.25}]}
    told = parquet_section(Results({"parquet-5gb": Entry(data, 1, 0.5)}))
    assert told.startswith("## A topic to Parquet") and "2.5 million records of 1000 B" in told
    assert "2,000 | 1.50 µs | 0.50 µs | 0.25 µs | – |" in told and "MISSED" not in told


@pytest.mark.live
def test_rates_of_tables_are_compared_with_their_targets() -> None:
    rates = {FILES: 2e6, WIRE: 9e5, CONFLUENT: 1e5}
    data = {name: [{"rate": rate, "client_cpu": 2, "broker_cpu": 0.5}] for name, rate in rates.items()}
    told = tables_section(Results({"arrow-1kb": Entry(data, 1, 0.5)}))
    assert "| 1 million records of 1000 B |" in told
    assert f"| {FILES} | 2,000 k | 2,000 | 2.00 µs | 0.50 µs |" in told
    assert f"{FILES} ≥ 2,000 MB/s: met. {WIRE} ≥ 1,000 MB/s: MISSED." in told
    assert tables_section(Results()) == ""


@pytest.mark.live
@pytest.mark.parametrize(
    ("speed", "cpu", "word"), [(54, 3.6, "met"), (53.9, 3.6, "MISSED: MB/s |"), (60, 3.7, "MISSED: CPU |")]
)
def test_compaction_is_judged(speed: float, cpu: float, word: str) -> None:
    def costs(*values: float) -> list[dict[str, float]]:
        return [dict(zip(("mb_s", "cpu_per_gb"), values, strict=True))]

    data = {KAFKA: costs(54, 3.6), ODRADEK: costs(speed, cpu)}
    text = compaction_section(Results({"compact-1k": Entry(data, 1)}))
    assert word in text
    assert "54 MB/s, 3.60 CPU s/GB" in text
    assert compaction_section(Results()) == ""


@pytest.mark.live
@pytest.mark.parametrize(("key", "looked", "words"), [
    ("look-batch1", 1.10, "| +10% | ≤ +10% | met |"),
    ("look-batch1", 1.12, "| +12% | ≤ +10% | MISSED |"),
    ("look-full-lz4", 1.24, "| 1 KB, full batches, lz4 | 1.00 µs | 1.24 µs | +24% | ≤ +25% | met |"),
])  # fmt: skip
def test_cost_of_checking_records_is_judged(key: str, looked: float, words: str) -> None:
    data = {"trusted": [{"cpu_us": 1.0}], "looked at": [{"cpu_us": looked}]}
    assert words in record_looks_section(Results({key: Entry(data, 1)}))
    assert record_looks_section(Results()) == ""
