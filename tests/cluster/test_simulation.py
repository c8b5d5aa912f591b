"""Random histories of a whole simulated cluster: no acknowledged record is lost, and the cluster recovers.

A failing history names its seed: `python -m tests.cluster.simulation SEED` replays it. Each long test plays some of
its 200 seeds; `ODRADEK_SIMULATION_HISTORIES=200` plays all, which takes a day, and `ODRADEK_SIMULATION_FIRST=n` makes
them begin at other seeds.
"""

from __future__ import annotations

import os

import pytest

from .simulation.history import History, explained

SHORT, LONG, TOGETHER = 50, 6000, 25
LOST = "lose_orders,elect,cut_one_way,cut_link"  # requests of one controller are lost, those of the next arrive

NONSENSE = "nonsense,kill,kill_controller_process,elect,create,delete"
DYING = "elect,kill_about_to_lead,cut_link"
DELETING = "delete_records,kill,wipe,isolate,stop,move,elect"
DISKS = "fail_dir,move,move_back,remake_while_away,kill,delete,add_partitions,remake,wipe"
RESTARTED = "fail_dir,kill,bounce,create"
ANYWHERE = "die_at,elect,kill,cut_link,lose_orders,move,kill_controller_process"
UNCLEAN = "elect_unclean,allow_unclean,min_isr,kill,cut_link,isolate,die_at"
SUSPECTED = "refuse,allow_unclean,elect_unclean,cut_one_way,stop"
BEHIND = "fall_behind,elect,cut_one_way,min_isr"
LATE = "late_orders,elect,kill_controller_process,kill,move,delete,create"
STOPPED = "stop_workers"
ASIDE = "fetchers,elect,cut_link,cut_one_way,kill"
POWER = "lose_power,elect,cut_link,kill_controller_process,isolate"
BACK = "lose_power_joining,lose_power_for_a_moment,elect,cut_link,kill_controller_process,isolate"
MANY = "die_at,fail_dir,elect_unclean,min_isr,move_back,delete_records,stop"

EACH = 200  # seeds of a long test
PLAYED = int(os.environ.get("ODRADEK_SIMULATION_HISTORIES", 5))
SHIFTED = int(os.environ.get("ODRADEK_SIMULATION_FIRST", 0))

KINDS = [DISKS, RESTARTED, ANYWHERE, UNCLEAN, SUSPECTED, BEHIND, LATE, STOPPED, MANY, ASIDE, POWER, BACK]


def run(first: int, count: int, only: str = "") -> None:
    """Run the histories of these seeds, with `only` some kinds of faults."""
    for seed in range(first, first + count):
        try:
            History(seed, only=only).run()
        except Exception as error:
            again = f"python -m tests.cluster.simulation {seed} {1 << 60} {only}"
            pytest.fail(f"{explained(seed, only=only)}\n{error!r}\nseed {seed}: {again}")


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(TOGETHER, SHORT, TOGETHER))]
)
def test_random_faults_lose_no_acknowledged_record(first: int) -> None:
    run(first, TOGETHER)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SHORT, LONG, EACH))
def test_random_faults_lose_no_acknowledged_record_in_many_histories(first: int) -> None:
    run(first + SHIFTED, PLAYED)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 300])
def test_lost_controller_requests_lose_no_acknowledged_record(first: int) -> None:
    """A leader that missed an epoch once trusted its former follower positions: seed 319 finds that."""
    run(first, TOGETHER, LOST)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SHORT, LONG, EACH))
def test_lost_controller_requests_lose_no_acknowledged_record_in_many_histories(first: int) -> None:
    run(first + SHIFTED, PLAYED, LOST)


def test_sessions_and_power_lost_without_a_controller_lose_no_acknowledged_record() -> None:
    """A follower that lost power stayed in the ISR where its leader had lost its session: seed 52202 finds that."""
    run(52200, 4, BACK)


def test_deaths_of_future_leaders_lose_no_acknowledged_record() -> None:
    """The epoch of a dead leader once stayed before records of the former epoch: seed 930059 finds that."""
    run(930052, 8, DYING)


@pytest.mark.slow
def test_deleted_records_diverge_no_log() -> None:
    """Logs of followers may end before the leader's begins, or begin after others'."""
    run(940000, 8, DELETING)


def test_completed_reassignment_loses_no_acknowledged_record() -> None:
    """A follower's log was once deleted between the fetch that committed a record and the acknowledgement."""
    run(940381, 1, DELETING)


@pytest.mark.long
@pytest.mark.parametrize("only", [DYING, DELETING])
@pytest.mark.parametrize("first", range(940000, 944000, EACH))
def test_deaths_and_deletions_lose_no_acknowledged_record_in_many_histories(first: int, only: str) -> None:
    run(first + SHIFTED, PLAYED, only)


@pytest.mark.slow
def test_truncations_in_a_thread_remove_no_newer_record() -> None:
    """A truncation that waited while its partition was reassigned once removed newer records: seed 16 finds that."""
    run(0, 18, ASIDE)


@pytest.mark.slow
def test_power_failures_break_no_guarantee() -> None:
    """A new controller must not trust the log of a broker that was down meanwhile: seed 26 finds that."""
    run(0, 28, POWER)


@pytest.mark.slow
def test_unnoticed_power_failures_break_no_guarantee() -> None:
    """A write that added a follower to the ISR once came after its next registration: seed 8 finds that."""
    run(0, 12, BACK)


@pytest.mark.slow
@pytest.mark.parametrize("only", KINDS)
def test_failing_disks_and_deaths_anywhere_lose_no_acknowledged_record(only: str) -> None:
    """A process may die before any change of memory, file, directory or tree, or before any message."""
    run(50000, TOGETHER // 4, only)


@pytest.mark.long
@pytest.mark.parametrize("only", KINDS)
@pytest.mark.parametrize("first", range(51000, 55000, EACH))
def test_failing_disks_and_deaths_anywhere_lose_no_acknowledged_record_in_many_histories(first: int, only: str) -> None:
    run(first + SHIFTED, PLAYED, only)


def test_cluster_recovers_from_malformed_topic_nodes() -> None:
    """Logs that a start had ignored once stayed when their topics were deleted: seeds 6, 46, 62 and 1404."""
    for first, count in ((5, 2), (46, 1), (62, 1), (1404, 1)):
        run(first, count, NONSENSE)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SHORT, LONG, EACH))
def test_cluster_recovers_from_malformed_topic_nodes_in_many_histories(first: int) -> None:
    run(first + SHIFTED, PLAYED, NONSENSE)


def test_seed_repeats_its_history() -> None:
    def events(seed: int) -> list[str]:
        history = History(seed)
        history.world.trace.__init__(maxlen=1_000_000)  # type: ignore[misc]  # sets another length in place
        history.run()
        return list(history.world.trace)

    assert events(7) == events(7)
