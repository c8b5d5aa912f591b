"""`odradek console-producer` and `console-consumer`: the consumer prints the lines that the producer sent."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from typing import Any

import pytest

from .conftest import Run, command_line

pytestmark = pytest.mark.live

LAST_SECONDS = 30


def _read(run: Run, topic: str, count: int, *words: str) -> bytes:
    """The first `count` messages as console-consumer prints them."""
    limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", f"{LAST_SECONDS * 1000}")
    result = run("console-consumer", "--topic", topic, *limits, *words)
    assert f"Processed a total of {count} messages".encode() in result.stderr
    return result.stdout


def _log(count: int) -> bytes:
    """Lines as in real logs: empty ones, CR, NUL, invalid UTF-8, 900 kB, no newline at the end."""
    choose = random.Random(7)
    odd = [b"", b"from Windows\r", b"\r\r", b"a\0b\0", b"\xff\xfe\xc3(", b"\xed\xa0\x80", b" ", b"\t"]
    lines = [
        choose.choice(odd) if choose.random() < 0.05 else b"%d GET /clicks/%d 200" % (i, choose.randrange(10**9))
        for i in range(count)
    ]
    lines[count // 2] = choose.randbytes(900_000).replace(b"\n", b"\r")
    return b"\n".join(lines)


def test_log_is_printed_byte_for_byte(run: Run, topic: str) -> None:
    log = _log(100_000)
    run("console-producer", "--topic", topic, stdin=log)
    assert _read(run, topic, 100_000) == log + b"\n"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_million_lines_are_printed_byte_for_byte(broker: Any, run: Run, topic: str, codec: str) -> None:
    log = _log(1_000_000)
    for words, stdin, want in (
        (["console-producer", "--compression-codec", codec], log, b""),
        (["console-consumer", "--from-beginning", "--max-messages", "1000000"], b"", log + b"\n"),
    ):
        line = command_line(*words, "--topic", topic, "--bootstrap-server", broker.bootstrap)
        result = subprocess.run(line, input=stdin, capture_output=True, timeout=600)
        assert result.returncode == 0, result.stderr[-2000:]
        assert result.stdout == want


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_round_trip_with_each_codec(run: Run, topic: str, codec: str) -> None:
    text = b"".join(b"line %d\n" % i for i in range(3000))
    run("console-producer", "--topic", topic, "--compression-codec", codec, stdin=text)
    assert _read(run, topic, 3000) == text


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_lines_round_trip_with_each_acks(run: Run, topic: str, acks: str) -> None:
    run("console-producer", "--topic", topic, "--request-required-acks", acks, stdin=b"1\n2\n3\n")
    assert _read(run, topic, 3) == b"1\n2\n3\n"


def test_empty_input_sends_no_message(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"")
    run("console-producer", "--topic", topic, "--sync", stdin=b"\n")
    assert run("get-offsets", "--topic", topic).stdout == f"{topic}:0:1\n".encode()


def test_keys_headers_and_nulls_round_trip(run: Run, topic: str) -> None:
    reading = ("parse.key=true", "parse.headers=true", "key.separator=:", "null.marker=NIL")
    text = b"a=1,b=NIL\tk1:v1\nNIL\tk2:NIL\nc=x\tNIL:NIL\nd=\t:with:colon\n"
    words = [word for setting in (*reading, "headers.key.separator==") for word in ("--property", setting)]
    run("console-producer", "--topic", topic, *words, stdin=text)
    printing = ("print.key=true", "print.headers=true", "print.offset=true", "null.literal=<null>")
    shown = [word for setting in printing for word in ("--property", setting)]
    assert _read(run, topic, 4, *shown).decode().splitlines() == [
        "Offset:0\ta:1,b:<null>\tk1\tv1",
        "Offset:1\tNO_HEADERS\tk2\t<null>",
        "Offset:2\tc:x\t<null>\t<null>",
        "Offset:3\td:\t\twith:colon",
    ]
    documents = [json.loads(line) for line in _read(run, topic, 2, "--formatter", "json").splitlines()]
    assert [(d["key"], d["value"], d["headers"]) for d in documents] == [
        ("k1", "v1", [["a", "1"], ["b", None]]),
        ("k2", None, []),
    ]


def test_line_without_a_key_is_an_error(run: Run, topic: str) -> None:
    parse = ("--property", "parse.key=true")
    failed = run("console-producer", "--topic", topic, *parse, stdin=b"k\tv\nno key\n", code=1)
    assert b"line 2" in failed.stderr and b"Traceback" not in failed.stderr
    assert _read(run, topic, 1) == b"v\n"
    run("console-producer", "--topic", topic, *parse, "--property", "ignore.error=true", stdin=b"no key\n")
    assert _read(run, topic, 2) == b"v\nno key\n"


def test_too_long_line_does_not_affect_the_others(run: Run, name: str) -> None:
    run("topics", "--create", "--topic", name, "--config", "max.message.bytes=1000")
    failed = run("console-producer", "--topic", name, stdin=b"before\n" + b"x" * 5000 + b"\nafter\n", code=1)
    assert b"1 messages of 3 were not sent" in failed.stderr
    assert _read(run, name, 2) == b"before\nafter\n"


def test_partition_and_offset_select_the_messages(run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"0\n1\n2\n3\n")
    where = ("--topic", topic, "--partition", "0", "--offset", "2", "--max-messages", "2", "--timeout-ms", "30000")
    assert run("console-consumer", *where).stdout == b"2\n3\n"
    absent = ("--topic", topic, "--partition", "7", "--timeout-ms", "1000")
    run("console-consumer", *absent, code=1)


def test_group_continues_at_its_offsets(run: Run, topic: str, name: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"0\n1\n2\n3\n")
    group = ("--group", name)
    assert _read(run, topic, 2, *group) == b"0\n1\n"
    assert _read(run, topic, 2, *group) == b"2\n3\n"


def test_include_reads_all_topics_that_match(run: Run, topic: str, name: str) -> None:
    run("topics", "--create", "--topic", f"{topic}-2")
    for each in (topic, f"{topic}-2"):
        run("console-producer", "--topic", each, stdin=each.encode() + b"\n")
    limits = ("--from-beginning", "--max-messages", "2", "--timeout-ms", f"{LAST_SECONDS * 1000}")
    both = run("console-consumer", "--include", f"{topic}.*", *limits).stdout.decode().split()
    assert sorted(both) == [topic, f"{topic}-2"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_consumer_cleanly(start: Any, run: Run, topic: str, number: int, code: int) -> None:
    run("console-producer", "--topic", topic, stdin=b"only\n")
    process = start("console-consumer", "--topic", topic, "--from-beginning")
    assert process.stdout.readline() == b"only\n"  # the consumer prints before a buffer is full
    process.send_signal(number)
    _, errors = process.communicate(timeout=LAST_SECONDS)
    assert process.returncode == code
    assert b"Processed a total of 1 messages" in errors and b"Traceback" not in errors


def test_closed_output_ends_the_consumer(start: Any, run: Run, topic: str) -> None:
    run("console-producer", "--topic", topic, stdin=b"line\n" * 50_000)
    process = start("console-consumer", "--topic", topic, "--from-beginning")
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    process.wait(LAST_SECONDS)
    errors = process.stderr.read()
    assert process.returncode == 0 and b"Traceback" not in errors and b"Exception" not in errors


def test_messages_of_a_slow_writer_are_sent_at_once(broker: Any, run: Run, topic: str) -> None:
    line = command_line("console-producer", "--topic", topic, "--broker-list", broker.bootstrap, "--timeout", "0")
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert _read(run, topic, 1) == b"first\n"
        process.communicate(b"second", timeout=LAST_SECONDS)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    assert _read(run, topic, 2) == b"first\nsecond\n"


def test_missing_broker_is_one_line(tmp_path: Any) -> None:
    properties = tmp_path / "p"
    properties.write_text("bootstrap.timeout.ms=1000\n")
    words = ("console-consumer", "--bootstrap-server", "127.0.0.1:1", "--topic", "t")
    result = subprocess.run(
        [*command_line(*words), "--consumer.config", str(properties)], capture_output=True, timeout=60
    )
    assert result.returncode == 1
    assert b"127.0.0.1:1" in result.stderr and b"Traceback" not in result.stderr


def test_wrong_usage_exits_with_2(run: Run, topic: str) -> None:
    run("console-consumer", code=2)
    run("console-consumer", "--topic", topic, "--offset", "3", code=2)
    run("console-consumer", "--topic", topic, "--include", topic, code=2)
    run("console-consumer", "--topic", topic, "--group", "a", "--consumer-property", "group.id=b", code=2)
    run("console-producer", "--topic", topic, "--property", "headers.separator=:", code=2)
    run("console-producer", "--topic", topic, "--request-required-acks", "2", code=2)
