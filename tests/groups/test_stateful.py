"""The group machine under any order of requests, deadlines and failures of the log."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.groups.events import JoinResult, SyncResult
from odradek.groups.group import Group, State
from odradek.protocol.errors import Error

from .world import World, drain

PROTOCOLS = [
    (("range", b"\0\0\0\0\0\0"),),
    (("range", b"\0\0\0\0\0\1\0\1t"), ("sticky", b"\0\0\0\0\0\0")),
    (("sticky", b"\0\0\0\0\0\0"), ("range", b"\0\0\0\0\0\0")),
]
ODD_PROTOCOLS = [
    (),
    (("", b""),),
    (("range", b""), ("range", b"\xff" * 9), ("range", b"")),
    (("range", b"\0\1\x7f\xff\xff\xff"), ("Ω" * 1000, b"")),
    (("sticky", b"\0"), ("range", b"\0\0\xff\xff\xff\xff"), ("sticky", b"\0")),
    tuple((f"p{n}", b"") for n in range(300)),
]
ODD_TEXTS = ["", " ", "range", "Ω" * 1000, "x" * 32_767, "a\0b", "i3"]
ODD_MS = [-(2**31), -1, 0, 1, 100, 6_000, 1_800_000, 2**31 - 1]
SLOTS = st.integers(0, 4)


class Client:
    """The state of a client: its member id, its generation, the request that it waits for."""

    def __init__(self, number: int) -> None:
        self.instance_id = f"i{number}" if number >= 3 else None
        self.requires_id = number % 2 == 0
        self.member_id = ""
        self.generation = -1
        self.join: int | None = None
        self.sync: int | None = None
        self.leads = False
        self.roster: tuple[str, ...] = ()


class Machine(RuleBasedStateMachine):
    """Five clients, of which two are static, over one group."""

    @initialize(max_size=st.sampled_from([2, 100]), delay=st.sampled_from([0, 3_000]))
    def start(self, max_size: int, delay: int) -> None:
        self.world = World(max_size=max_size, initial_delay_ms=delay)
        self.clients = [Client(n) for n in range(5)]
        self.sent: dict[int, str] = {}  # token → "join" or "sync"
        self.commits: dict[int, int] = {}
        self.taken: set[int] = set()
        self.generation = 0
        self.assigned: dict[tuple[int, str], bytes] = {}

    # -- requests of clients ------------------------------------------------------------------------------------

    @rule(slot=SLOTS, protocols=st.sampled_from(PROTOCOLS), rebalance_ms=st.sampled_from([5_000, 60_000]))
    def join(self, slot: int, protocols: Any, rebalance_ms: int) -> None:
        client = self.clients[slot]
        client.join = self.world.join(
            client.member_id,
            protocols=protocols,
            instance_id=client.instance_id,
            rebalance_timeout_ms=rebalance_ms,
            require_member_id=client.requires_id and client.instance_id is None,
            can_skip_assignment=slot == 3,
        )
        self.sent[client.join] = "join"
        self.take_answers()

    @rule(slot=SLOTS)
    def sync(self, slot: int) -> None:
        client = self.clients[slot]
        parts = {}
        if client.leads:
            parts = {member: f"{client.generation}/{client.sync}/{member}".encode() for member in client.roster[1:]}
        client.sync = self.world.sync(client.member_id, client.generation, assignments=parts)
        self.sent[client.sync] = "sync"
        self.take_answers()

    @rule(protocols=st.sampled_from(PROTOCOLS))
    def all_clients_join(self, protocols: Any) -> None:
        for _ in range(2):  # some only get a member id the first time
            for slot, client in enumerate(self.clients):
                if client.join is None or client.join in self.world.answers:
                    self.join(slot, protocols, 60_000)
        self.wait(3_000)

    @rule(leader_too=st.booleans())
    def members_of_the_generation_sync(self, leader_too: bool) -> None:
        for slot, client in enumerate(self.clients):
            if self.group and client.generation == self.group.generation and (leader_too or not client.leads):
                self.sync(slot)

    @rule(slot=SLOTS)
    def heartbeat(self, slot: int) -> None:
        client = self.clients[slot]
        self.world.beat(client.member_id, client.generation, client.instance_id)
        self.take_answers()

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        client = self.clients[slot]
        self.world.leave(client.member_id, client.instance_id)
        self.take_answers()

    @rule(slot=SLOTS)
    def restart_client(self, slot: int) -> None:
        """The client returns without its member id."""
        self.clients[slot].member_id = ""

    @rule(slot=SLOTS, offset=st.integers(0, 9))
    def commit(self, slot: int, offset: int) -> None:
        client = self.clients[slot]
        token = self.world.commit(
            offset, member_id=client.member_id, instance_id=client.instance_id, generation=client.generation
        )
        self.sent[token] = "commit"
        self.commits[token] = offset
        self.take_answers()

    @rule(offset=st.integers(0, 9), error=st.sampled_from([None, Error.MESSAGE_TOO_LARGE]))
    def commit_as_no_member(self, offset: int, error: Error | None) -> None:
        """Commit as a client that assigns partitions to itself."""
        before, self.world.log.error = self.world.log.error, error
        token = self.world.commit(offset)
        self.world.log.error = before
        self.sent[token] = "commit"
        self.commits[token] = offset
        self.take_answers()

    # -- requests of misbehaving clients ---------------------------------------------------------------------

    @rule(
        slot=SLOTS, protocols=st.sampled_from(PROTOCOLS + ODD_PROTOCOLS), instance=st.sampled_from([None, *ODD_TEXTS]),
        kind=st.sampled_from(["consumer", *ODD_TEXTS]), rebalance_ms=st.sampled_from(ODD_MS),
        session_ms=st.sampled_from(ODD_MS), member=st.sampled_from(["own", *ODD_TEXTS]), asks=st.booleans(),
    )  # fmt: skip
    def join_oddly(
        self, slot: int, protocols: Any, instance: str | None, kind: str, rebalance_ms: int, session_ms: int,
        member: str, asks: bool,
    ) -> None:  # fmt: skip
        token = self.world.join(
            self.clients[slot].member_id if member == "own" else member, protocols=protocols, instance_id=instance,
            protocol_type=kind, rebalance_timeout_ms=rebalance_ms, session_timeout_ms=session_ms,
            client_id="x" * 32_767, require_member_id=asks and instance is None,
        )  # fmt: skip
        self.sent[token] = "join"
        self.take_answers()

    @rule(
        slot=SLOTS,
        other=SLOTS,
        generation=st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1, None]),
        text=st.sampled_from(ODD_TEXTS),
    )
    def sync_oddly(self, slot: int, other: int, generation: int | None, text: str) -> None:
        client = self.clients[slot]
        parts = {text: b"x" * 5000, self.clients[other].member_id: b"", "": b""}
        token = self.world.sync(
            client.member_id, client.generation if generation is None else generation, assignments=parts,
            instance_id=client.instance_id, protocol=text or None,
        )  # fmt: skip
        self.sent[token] = "sync"
        self.take_answers()

    @rule(slot=SLOTS, text=st.sampled_from(ODD_TEXTS), instance=st.sampled_from([None, *ODD_TEXTS]))
    def leave_and_beat_oddly(self, slot: int, text: str, instance: str | None) -> None:
        self.world.beat(text, self.clients[slot].generation, instance)
        self.world.leave(self.clients[slot].member_id, instance)
        self.world.leave(text, instance)
        self.take_answers()

    @rule()
    def fault(self) -> None:
        """An internal error: the group is loaded again, and its members repeat their requests."""
        faults = self.world.groups.faults
        self.world.groups.reset("g", self.world.now)
        self.world.groups.faults = faults
        self.world.settle()
        self.generation = 0  # the generation may not have been in the log yet
        self.take_answers()

    # -- time, failures and crashes -----------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 2_999, 3_000, 5_000, 9_999, 10_000, 60_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)
        self.take_answers()

    @rule(error=st.sampled_from([None, Error.KAFKA_STORAGE_ERROR, Error.REQUEST_TIMED_OUT]))
    def log_fails(self, error: Error | None) -> None:
        self.world.log.error = error

    @rule(lag=st.integers(0, 3))
    def replicas_lag(self, lag: int) -> None:
        self.world.log.lag = lag
        self.world.settle()
        self.take_answers()

    @rule(busy=st.booleans())
    def partition_is_busy(self, busy: bool) -> None:
        self.world.log.busy = busy
        self.world.writer.write(self.world.now)
        self.world.settle()
        self.take_answers()

    @rule()
    def expire_offsets(self) -> None:
        drain(self.world.groups.expiring(self.world.now))
        self.world.settle()
        if self.group is None:
            self.generation = 0
        self.take_answers()

    @precondition(lambda self: self.world.log.lag == 0)
    @rule()
    def crash(self) -> None:
        """The coordinator dies: waiting requests are lost (workers answer them), and the log is loaded."""
        readable = self.world.log.error is None and not self.world.groups.refusal("g")
        committed = self.world.committed() if readable else None
        waiting = {token for token in self.sent if token not in self.world.answers}
        old = self.world
        self.world = old.restarted()
        self.world.answers, self.world._tokens = old.answers, old._tokens
        for token in waiting:
            del self.sent[token]
        if committed is not None and not old.writer.is_waiting:
            assert self.world.committed() in {committed, *self.timed_out()}
        self.generation = self.group.generation if self.group else 0

    def timed_out(self) -> set[int]:
        """Commits in the log that were not acknowledged: the high watermark passed them too late."""
        late = {("t", 0): Error.REQUEST_TIMED_OUT}
        return {offset for token, offset in self.commits.items() if late in self.world.answers.get(token, [])}

    # -- invariants ---------------------------------------------------------------------------------------------

    @property
    def group(self) -> Group | None:
        return self.world.groups.get("g")

    def take_answers(self) -> None:
        for client in self.clients:
            for token in (client.join, client.sync):
                answers = self.world.answers.get(token, [])
                if answers and token not in self.taken:
                    self.taken.add(token or 0)
                    self.take(client, answers[0])

    def take(self, client: Client, answer: JoinResult | SyncResult) -> None:
        if isinstance(answer, JoinResult):
            self.take_join(client, answer)
        elif answer.error is Error.NONE:
            known = self.assigned.setdefault((client.generation, client.member_id), answer.assignment)
            assert known == answer.assignment, "two assignments for one member of one generation"

    def take_join(self, client: Client, answer: JoinResult) -> None:
        if answer.error in (Error.NONE, Error.MEMBER_ID_REQUIRED):
            client.member_id = answer.member_id
        if answer.error in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            client.member_id = ""
        if answer.error is Error.NONE:
            assert answer.generation > 0 and answer.protocol in ("range", "sticky")
            client.generation = answer.generation
            client.leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.roster = tuple(member for member, _, _ in answer.members)
            assert not answer.members or answer.leader == answer.member_id

    @invariant()
    def every_request_waits_or_has_one_answer(self) -> None:
        assert all(len(answers) == 1 for answers in self.world.answers.values())
        unanswered = {t for t, what in self.sent.items() if t not in self.world.answers and what != "commit"}
        waiting = set()
        if self.group:
            for member in self.group.members.values():
                waiting |= {member.join, member.sync} - {None}
        assert unanswered == waiting, "a callback was lost"

    @invariant()
    def no_exception_is_raised(self) -> None:
        assert self.world.groups.faults == 0

    @invariant()
    def last_acknowledged_commit_is_fetched(self) -> None:
        """A later commit that timed out may be fetched instead: a coordinator that loads the log finds it."""
        if self.world.groups.refusal("g"):
            return
        told = {token: self.world.answers.get(token, [{}])[0].get(("t", 0)) for token in self.commits}
        last = max((token for token, error in told.items() if error is Error.NONE), default=0)
        late = {
            self.commits[token] for token, error in told.items() if error is Error.REQUEST_TIMED_OUT and token > last
        }
        assert self.world.committed() in {self.commits.get(last), *late}

    @invariant()
    def generations_only_rise(self) -> None:
        if self.group:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert group.joined == sum(member.join is not None for member in members.values())
        assert all(member.id == member_id for member_id, member in members.items())
        assert group.static == {m.instance_id: m.id for m in members.values() if m.instance_id is not None}
        assert (group.leader in members) if members else group.leader is None
        assert not group.pending & members.keys()
        assert group.unsynced <= members.keys()
        assert group.state is not State.DEAD
        if group.state is State.EMPTY:
            assert not members
        if group.state in (State.COMPLETING, State.STABLE):
            assert members and group.protocol is not None

    @invariant()
    def every_state_has_a_deadline(self) -> None:
        """No state may last for ever because its deadline was lost."""
        group, timers = self.group, self.world.groups.timers
        if group is None:
            return
        if group.state is State.PREPARING:
            assert ("g", "join", "") in timers
        if group.unsynced:
            assert ("g", "sync", "") in timers
        for member in group.members.values():
            assert member.is_waiting or ("g", "member", member.id) in timers
        for member_id in group.pending:
            assert ("g", "pending", member_id) in timers


TestGroupMachine = Machine.TestCase
TestGroupMachine.settings = settings(
    max_examples=100, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
