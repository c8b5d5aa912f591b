import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files import names

TOPICS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,249}\Z")


@given(TOPICS, st.integers(0, 2**31 - 1))
def test_a_partition_directory_parses_back(topic: str, partition: int) -> None:
    parsed = names.parse_partition_dir(names.partition_dir(topic, partition))
    assert parsed == names.PartitionDir(topic, partition)


@given(TOPICS, st.integers(0, 10**9), st.sampled_from(names.MARKED_DIRS))
def test_a_marked_directory_keeps_partition_and_mark(topic: str, partition: int, mark: str) -> None:
    name = names.marked_dir(topic, partition, mark)
    parsed = names.parse_partition_dir(name)
    assert parsed is not None
    assert (parsed.partition, parsed.mark) == (partition, mark)
    assert topic.startswith(parsed.topic)
    assert mark == names.FUTURE_DIR or len(name) <= names.MAX_NAME
    if len(topic) < 190:
        assert parsed.topic == topic


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("clicks-0.b0b8e1c1a4e84ec3a4a1ae1e19eb2a51-delete", ("clicks", 0, "-delete")),
        ("a-b-c-12", ("a-b-c", 12, "")),
        ("clicks-0-delete", None),
        ("clicks", None),
        ("-1", None),
        ("clicks-", None),
        ("clicks-x", None),
        ("clicks-2147483647", ("clicks", 2147483647, "")),
        ("clicks-2147483648", None),
        ("clicks-01", None),
        ("clicks-\u0663", None),
        ("clicks-1\n", None),
        ("clicks-01.b0b8e1c1a4e84ec3a4a1ae1e19eb2a51-delete", None),
    ],
)
def test_directory_names(name: str, parsed: tuple[str, int, str] | None) -> None:
    assert names.parse_partition_dir(name) == parsed


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.timeindex.swap", (42, ".timeindex", ".swap")),
        ("00000000000000000042.snapshot.deleted", (42, ".snapshot", ".deleted")),
        ("09223372036854775807.log", (2**63 - 1, ".log", "")),
        ("09223372036854775808.log", None),
        ("0000000000000000004\u0662.log", None),
        ("00000000000000000042.log\n", None),
        ("42.log", None),
        ("leader-epoch-checkpoint", None),
        ("00000000000000000042.log.17.corrupt", None),
    ],
)
def test_segment_file_names(name: str, parsed: tuple[int, str, str] | None) -> None:
    assert names.parse_segment_file(name) == parsed


def test_twenty_digits() -> None:
    assert names.offset_name(7) == "00000000000000000007"
    assert names.offset_name(2**63 - 1) == "09223372036854775807"
    with pytest.raises(ValueError, match="-1"):
        names.offset_name(-1)
