"""What goes wrong, and what people do meanwhile. Each history has some kinds of it only, so that they meet often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.cluster import znodes
from odradek.cluster.tree import NoNode, Set

from .cluster import NONSENSE, Cluster

Fault = Callable[[], None]


class Faults:
    """Something from a list every now and then, until `end`. Everything is mended by itself, or by `heal`."""

    def __init__(self, cluster: Cluster, wipe: bool = True, power: bool = False, only: str = "", **_: Any) -> None:
        """`wipe`: brokers come back with an empty disk, one at a time, `power`: without what was not flushed.

        `only`: the kinds, by name, with commas; else some are chosen.
        """
        self.cluster = cluster
        self.world = cluster.world
        self.over = False
        self._calm_until = 0.0
        named = self._kinds()
        if only:
            named = {name: named[name] for name in only.split(",")}
        for name, wanted in (("wipe", wipe), ("lose_power", power), ("nonsense", "nonsense" in only)):
            if not wanted:
                named.pop(name, None)
        kinds = list(named.items())
        count = len(kinds) if only else self.world.random.randint(2, len(kinds))
        self.kinds = dict(self.world.random.sample(kinds, count))
        self.pace = self.world.random.choice((0.15, 0.4, 1.0))

    def _kinds(self) -> dict[str, Fault]:
        names = [name for name in dir(self) if name.startswith("do_")]
        return {name[3:]: getattr(self, name) for name in names}

    def begin(self) -> None:
        """The first one comes soon."""
        self.world.say(f"faults: {', '.join(self.kinds)}; one in {self.pace} s")
        self.world.after(self.pace, None, self._next)

    def _next(self) -> None:
        if not self.over:
            if not self.cluster.invariants.exempt and self._calm_until <= self.world.now:
                self.world.random.choice(list(self.kinds.values()))()
            self.world.after(self.world.between(0, 2 * self.pace), None, self._next)

    def heal(self) -> None:
        """Nothing is wrong any more; whoever is down starts."""
        self.over = True
        self.world.say("-- everything is mended")
        cluster = self.cluster
        self._zookeeper(True)
        cluster.network.cuts.clear()
        cluster.network.refusing.clear()
        cluster.network.slow = 0.0
        for path in list(cluster.spoilt):
            self._unspoil(path)
        for broker in cluster.brokers.values():
            cluster.cut_from_zookeeper(broker.number, False)
            self._start(broker)
            for log_dir in broker.disk.log_dirs:  # of whom no more writes there the janitor notices, now or later
                if log_dir.broken:
                    broker.shared.fail_dir(log_dir.number)

    def mend(self) -> None:
        """Brokers whose log directories have failed are started again, with other disks under the same data."""
        for broker in self.cluster.brokers.values():
            if any(log_dir.broken for log_dir in broker.disk.log_dirs):
                broker.die("is killed, and its disks are mended")
                broker.disk.mend()
            self._start(broker)

    # -- who and when

    def _any(self) -> Any:
        """A broker, the controller more often than by chance."""
        brokers = list(self.cluster.brokers.values())
        chosen = [one for one in brokers if one.up and one.controller and one.controller.owner.elected]
        return self.world.random.choice(chosen if chosen and self.world.chance(0.3) else brokers)

    def _soon(self, longest: float, action: Fault) -> None:
        self.world.after(self.world.between(0, longest), None, action)

    def _start(self, broker: Any) -> None:
        if not broker.up:
            broker.start()
        elif broker.shared.draining:
            self.world.after(0.5, None, lambda: self._start(broker))

    # -- faults

    def do_nonsense(self) -> None:
        """Somebody's hand spoils a topic's node, and mends it soon after, or later."""
        path = znodes.topic_path(self._topic())
        if path not in self.cluster.zookeeper.nodes or path in self.cluster.spoilt:
            return

        def spoil(tree: Any) -> None:
            data, stat = tree.get(path)
            if data == NONSENSE:  # by another fault that was under way
                return
            self.world.say(f"{path} becomes nonsense")
            self.cluster.spoilt[path] = data
            tree.multi([Set(path, NONSENSE, stat.version)])
            self._soon(self.world.random.choice((0.3, 3.0)), lambda: self._unspoil(path))

        self.cluster.tool(spoil)

    def _unspoil(self, path: str) -> None:
        """Unless it was deleted meanwhile, and maybe made again; until it is done."""

        def mend(tree: Any) -> None:
            former = self.cluster.spoilt.get(path)
            if former is None:
                return
            try:
                data, stat = tree.latest(path)
            except NoNode:
                data = b""
            if data == NONSENSE:
                self.world.say(f"{path} makes sense again")
                tree.multi([Set(path, former, stat.version)])
            self.cluster.spoilt.pop(path, None)

        if path in self.cluster.spoilt:
            self.cluster.tool(mend)
            self.world.after(1.0, None, lambda: self._unspoil(path))

    def do_kill(self) -> None:
        """kill -9, and a start soon after, or later."""
        broker = self._any()
        broker.die("is killed")
        self._soon(self.world.random.choice((0.05, 1.0, 5.0)), lambda: self._start(broker))

    def do_vanish(self) -> None:
        """The host is gone without a word."""
        broker = self._any()
        broker.die("vanishes", vanish=True)
        self._soon(self.world.random.choice((0.5, 5.0)), lambda: self._start(broker))

    def do_bounce(self) -> None:
        """Controlled shutdown, and a start."""
        broker = self._any()
        broker.shut_down()
        self._soon(5.0, lambda: self._start(broker))

    def do_wipe(self) -> None:
        """A start with an empty disk, where all is well and nothing else goes wrong."""
        self._calm_until = self.world.now + 5.0
        self.world.after(4.9, None, self._wipe)

    def _wipe(self) -> None:
        broker = self._any()
        if self._well() and self._elsewhere(broker.number):
            broker.die("is killed and loses its disk")
            broker.disk.wipe()
            self.cluster.invariants.wiped(broker.number)
            self._soon(self.world.random.choice((0.05, 3.0)), lambda: self._start(broker))

    def _well(self) -> bool:
        """Whether nothing else is wrong at the moment."""
        cluster = self.cluster
        wrong = cluster.network.cuts or cluster.cut_off or cluster.going() or not cluster.led()
        return cluster.zookeeper.up and not wrong and all(
            one.up and one.registered and one.controller is not None and one.loop.stopped_until < self.world.now
            and one.number not in cluster.suspected() and not one.shared.draining
            and one.session is not None and one.session.connected
            for one in cluster.brokers.values()
        )  # fmt: skip

    def _elsewhere(self, broker: int) -> bool:
        cluster = self.cluster
        for topic in cluster.topics:
            for index, replicas in cluster.topic(topic).replicas.items():
                if broker not in replicas:
                    continue
                state = cluster.state(topic, index)
                if state is None or set(state.isr) != set(replicas) or len(replicas) == 1:
                    return False
                if any(cluster.registered_since(topic, index, one) for one in replicas):
                    return False
        return True

    def do_lose_power(self) -> None:
        """The host is gone, and with it the ends of its logs that nobody has flushed."""
        broker = self._any()
        if broker.up:
            broker.die("loses power", vanish=True)
            broker.disk.lose_unflushed(self.world.random.randint)
            self._soon(self.world.random.choice((0.5, 5.0)), lambda: self._start(broker))

    def do_kill_controller_process(self) -> None:
        """One process of a broker."""
        self._any().kill_controller()

    def do_die_at(self) -> None:
        """A process dies, alone or with its broker, between two things that outlive it: words of shared memory,
        records, checkpoints, directories, what it sends to others or writes to ZooKeeper.
        """
        random, broker = self.world.random, self._any()
        process = broker.process(random.choice(("controller", "controller", "workers", "replicator", "janitor")))
        if process is None:
            return
        process.effects_left = random.randint(1, random.choice((4, 20, 100)))
        if random.random() < 0.3:
            process.end = lambda: self._die(broker)

    def _die(self, broker: Any) -> None:
        broker.die("dies in the midst of something")
        self._soon(1.0, lambda: self._start(broker))

    def do_fail_dir(self) -> None:
        """One or two log directories of a broker fail: somebody notices, or who writes there next. A later start may
        find them mended, with what was in them, or empty where no ISR counts on it.
        """
        random, broker = self.world.random, self._any()
        if any(log_dir.broken for log_dir in broker.disk.log_dirs):
            if random.random() < 0.6:
                broker.die("is killed, and its disks are mended")
                self._mend(broker)
                self._soon(2.0, lambda: self._start(broker))
            return
        for log_dir in random.sample(broker.disk.log_dirs, random.choice((1, 1, 2, 3))):
            self.world.say(f"broker {broker.number}: {log_dir} fails")
            log_dir.broken = True
            if broker.up and random.random() < 0.5:
                broker.shared.fail_dir(log_dir.number)

    def _mend(self, broker: Any) -> None:
        states, keys = self.cluster.invariants.states, self.cluster.invariants.keys
        counted = {keys[path] for path, state in states.items() if broker.number in state.isr}
        for log_dir in broker.disk.log_dirs:
            spare = all(one.key not in counted for one in log_dir.directories.values())
            if log_dir.broken and spare and self.world.chance(0.3):
                broker.disk.wipe_dir(log_dir)
        broker.disk.mend()

    def do_kill_about_to_lead(self) -> None:
        """The process that is told to lead has noted its epoch in the log, and nobody knows it yet."""
        broker = self._any()
        broker.dies_noting = True
        self._soon(0.3, self.do_elect)
        self.world.after(1.0, None, lambda: setattr(broker, "dies_noting", False))

    def do_stop(self) -> None:
        """SIGSTOP, SIGCONT."""
        broker = self._any()
        seconds = self.world.random.choice((0.3, 1.0, 4.0))
        broker.stop(seconds)
        if seconds > 0.5:
            self._cut_from_zookeeper(broker.number, seconds)

    def do_stop_controller_process(self) -> None:
        """SIGSTOP, SIGCONT of one process: orders wait while the workers go on, and no session is kept."""
        broker = self._any()
        seconds = self.world.random.choice((0.3, 1.0, 1.8, 4.0))
        broker.stop_controller(seconds)
        if seconds > 0.5:
            self._cut_from_zookeeper(broker.number, seconds)

    def do_stop_workers(self) -> None:
        """SIGSTOP, SIGCONT of what serves clients of the controller's broker, which leads, follows and leads again."""
        chosen = [
            one for one in self.cluster.brokers.values() if one.up and one.controller and one.controller.owner.elected
        ]
        for broker in chosen:
            seconds = self.world.random.choice((0.5, 1.0, 2.0))
            self.world.say(f"broker {broker.number}: its workers are stopped for {seconds} s")
            broker.workers.process.stopped_until = self.world.now + seconds
            for _ in range(4):
                self._soon(seconds, self.do_elect)

    def do_expire(self) -> None:
        """A session ends though its broker lives."""
        session = self._any().session
        if session is not None and self.cluster.zookeeper.up:
            self.cluster.zookeeper.expire(session)

    def do_lose_zookeeper(self) -> None:
        """A connection to it breaks for a moment."""
        session = self._any().session
        if session is not None:
            session.disconnect()

    def do_cut_from_zookeeper(self) -> None:
        """One broker does not reach it, for longer than its session lasts or not."""
        self._cut_from_zookeeper(self._any().number, self.world.between(0, 5))

    def _cut_from_zookeeper(self, broker: int, seconds: float) -> None:
        self.world.say(f"broker {broker} does not reach zookeeper")
        self.cluster.cut_from_zookeeper(broker, True)
        self.world.after(seconds, None, lambda: self.cluster.cut_from_zookeeper(broker, False))

    def do_zookeeper_down(self) -> None:
        """All of it."""
        self._zookeeper(False)
        self._soon(4.0, lambda: self._zookeeper(True))

    def _zookeeper(self, up: bool) -> None:
        self.world.say(f"zookeeper is {'up' if up else 'down'}")
        self.cluster.zookeeper.up = up

    def do_refuse(self) -> None:
        """A false suspicion: a broker that lives loses its connections and refuses new ones."""
        broker, network = self._any(), self.cluster.network
        seconds = self.world.random.choice((0.05, 0.3, 2.0))
        self.world.say(f"broker {broker.number} refuses connections for {seconds} s, and lives")
        network.refusing[broker.number] = self.world.now + seconds
        for connection in network.of(broker.number):
            if connection.brokers[1] == broker.number and self.world.chance(0.8):
                connection.reset()

    def do_lose_connections(self) -> None:
        """Of a broker, for a moment."""
        broker = self._any().number
        self.world.say(f"broker {broker} loses connections")
        for connection in self.cluster.network.of(broker):
            if self.world.chance(0.5):
                connection.reset()

    def do_lose_under_way(self) -> None:
        """A connection is lost as soon as there is a request of the controller's on one."""
        self._while_telling(lambda connection: connection.reset())

    def do_kill_while_telling(self) -> None:
        """The controller is killed as soon as it says something, with what it has still to say."""

        def kill(connection: Any) -> None:
            broker = self.cluster.brokers[connection.brokers[0]]
            if self.world.chance(0.5):
                broker.kill_controller()
            elif broker.up:
                broker.die("is killed while it tells")
                self._soon(1.0, lambda: self._start(broker))

        self._while_telling(kill)

    def do_lose_orders(self) -> None:
        """A broker hears nothing of what is decided, while it serves, until another controller says how it stands."""
        chosen = [
            one for one in self.cluster.brokers.values() if one.up and one.controller and one.controller.owner.elected
        ]
        if not chosen:
            return
        teller, cuts = chosen[0], self.cluster.network.cuts
        deaf = self.world.random.choice([number for number in self.cluster.brokers if number != teller.number])
        self.world.say(f"broker {deaf} does not hear what {teller.number} decides")
        cuts.add((teller.number, deaf))
        self._soon(0.2, self.do_elect)

        def end() -> None:
            teller.kill_controller()
            cuts.discard((teller.number, deaf))
            self._soon(0.5, self.do_elect)

        self.world.after(self.world.between(0.2, 0.8), None, end)

    def _while_telling(self, action: Callable[[Any], object]) -> None:
        until = self.world.now + 0.5

        def look() -> None:
            busy = [one for one in self.cluster.network.busy() if self.world.chance(0.5)]
            for connection in busy:
                action(connection)
            if not busy and self.world.now < until:
                self.world.after(0.002, None, look)

        look()

    def do_cut_link(self) -> None:
        """Two brokers do not reach each other."""
        one, other = self.world.random.sample(list(self.cluster.brokers), 2)
        self._cut([(one, other), (other, one)])

    def do_cut_one_way(self) -> None:
        """What a broker sends does not reach another, which it hears."""
        one, other = self.world.random.sample(list(self.cluster.brokers), 2)
        self._cut([(one, other)])

    def do_isolate(self) -> None:
        """A broker reaches none of the others, and ZooKeeper or not."""
        one = self._any().number
        others = [other for other in self.cluster.brokers if other != one]
        self._cut([*((one, other) for other in others), *((other, one) for other in others)])
        if self.world.chance(0.5):
            self._cut_from_zookeeper(one, self.world.between(0, 5))

    def _cut(self, pairs: list[tuple[int, int]]) -> None:
        self.world.say(f"nothing comes through from one to the other of {pairs}")
        self.cluster.network.cuts.update(pairs)
        self._soon(5.0, lambda: self.cluster.network.cuts.difference_update(pairs))

    def do_late_orders(self) -> None:
        """Some of what controllers have sent comes again, from buffers of connections that are lost."""
        orders = list(self.cluster.network.orders)
        for number, frame in self.world.random.sample(orders, min(8, len(orders))):
            workers = self.cluster.brokers[number].workers
            self.world.after(
                self.world.between(0, 0.5), workers.process, lambda one=workers, frame=frame: one.late(frame)
            )  # type: ignore[misc]

    def do_fall_behind(self) -> None:
        """A follower is cut off until it is in no ISR, and back when others come to lead, who do not know yet what was
        committed.
        """
        one, network = self._any().number, self.cluster.network
        pairs = {pair for other in self.cluster.brokers if other != one for pair in ((one, other), (other, one))}
        self.world.say(f"broker {one} falls behind")
        network.cuts.update(pairs)

        def back() -> None:
            network.cuts.difference_update(pairs)
            network.slow = self.world.random.choice((0.0, 0.1, 0.3))
            for _ in range(3):
                self._soon(0.6, self.do_elect)
            self._soon(1.0, lambda: setattr(network, "slow", 0.0))

        self.world.after(self.world.between(1.6, 3.0), None, back)

    def do_slow(self) -> None:
        """Messages take long."""
        network = self.cluster.network
        network.slow = self.world.random.choice((0.01, 0.1, 0.6))
        self._soon(3.0, lambda: setattr(network, "slow", 0.0))

    # -- people

    def do_create(self) -> None:
        """A topic, perhaps of a name that there was before."""
        if len(self.cluster.topics) < 4:
            self.create(self.world.random.choice("abcd"))

    def create(self, name: str) -> None:
        """A topic of one or two partitions."""
        self.cluster.create_topic(name, self._assignment(self.world.random.randint(1, 2)))

    def _assignment(self, partitions: int) -> dict[int, list[int]]:
        brokers = list(self.cluster.brokers)
        factor = self.world.random.choice((1, 2, 3, 3, 3))
        return {index: self.world.random.sample(brokers, min(factor, len(brokers))) for index in range(partitions)}

    def do_remake(self) -> None:
        """A topic is made anew behind the controller's back, where all is well and nothing else goes wrong.

        Versions of nodes begin anew: what is written by older knowledge of the former topic may be taken for the new.
        """
        self._calm_until = self.world.now + 4.0
        self.world.after(2.0, None, self._remake)

    def _remake(self) -> None:
        if self.over or not self.cluster.topics or not self._well():
            return
        name = self.world.random.choice(self.cluster.topics)
        if all(self.cluster.state(name, index) is not None for index in self.cluster.topic(name).replicas):
            self.cluster.remake_topic(name, self._assignment(self.world.random.randint(1, 2)))

    def do_move(self) -> None:
        """A topic's partitions go to other brokers."""
        if self.cluster.topics:
            name = self.world.random.choice(self.cluster.topics)
            self.cluster.move(name, self._assignment(len(self.cluster.topic(name).replicas)))

    def do_delete(self) -> None:
        """A topic, which is made again perhaps."""
        topics = self.cluster.topics
        if len(topics) > 1:
            name = self.world.random.choice(topics)
            self.cluster.delete_topic(name)
            if self.world.chance(0.5):
                self._soon(2.0, lambda: self.create(name))

    def do_delete_records(self) -> None:
        """Some or all that is committed, of whom is asked."""
        random, cluster = self.world.random, self.cluster
        for name in cluster.topics:
            for index, replicas in cluster.topic(name).replicas.items():
                state = cluster.state(name, index)
                to = state.leader if state is not None and random.random() < 0.7 else random.choice(replicas)
                if to in cluster.brokers:
                    cluster.delete_records(name, index, to, random.choice((-1, -1, random.randint(0, 200))))

    def do_prefer(self) -> None:
        """Leaders go back to the preferred replicas."""

        def prefer(elected: Any) -> None:
            self.world.say("preferred leaders are elected")
            elected.elections.elect(list(elected.leadership.partitions()), unclean=False)

        self._in_office(prefer)

    def do_elect_unclean(self) -> None:
        """An administrator gives up what only those have that are gone; most often where nobody else is in sync."""
        if self.world.chance(0.7):
            self._strand(lambda: self._in_office(self._uncleanly))
        else:
            self._in_office(self._uncleanly)

    def _uncleanly(self, elected: Any) -> None:
        partitions = list(elected.leadership.partitions())
        self.cluster.invariants.allowed.update(topic for topic, _ in partitions)
        self.world.say("leaders are elected, clean or not")
        elected.elections.elect(partitions, unclean=True)

    def do_allow_unclean(self) -> None:
        """A topic's configs allow unclean elections, or do not any more; most often where one is waited for."""
        name = self._topic()
        if name:
            self.cluster.invariants.allowed.add(name)
            value = self.world.random.choice(("true", "true", "false"))
            allow = lambda: self.cluster.configure(name, "unclean.leader.election.enable", value)  # noqa: E731
            self._strand(allow) if self.world.chance(0.5) else allow()

    def _strand(self, then: Fault) -> None:
        """A leader is cut off from its followers until it is alone in sync, then it is killed; `then`, and it returns.

        What it has taken meanwhile nobody else has.
        """
        up = [one for one in self.cluster.brokers.values() if one.up]
        if not up:
            return
        leader = self.world.random.choice(up)
        others = [number for number in self.cluster.brokers if number != leader.number]
        pairs = {(leader.number, other) for other in self.world.random.sample(others, len(others) - 1) or others}
        self.world.say(f"nothing comes through from one to the other of {pairs}")
        self.cluster.network.cuts.update(pairs)

        def end() -> None:
            leader.die("is killed, alone in sync")
            self.cluster.network.cuts.difference_update(pairs)
            self._soon(2.5, then)
            self._soon(4.0, lambda: self._start(leader))

        self.world.after(self.world.between(1.0, 2.5), None, end)

    def do_min_isr(self) -> None:
        """min.insync.replicas of a topic is another."""
        name = self._topic()
        if name:
            self.cluster.configure(name, "min.insync.replicas", str(self.world.random.randint(1, 3)))

    def _topic(self) -> str:
        """Some topic; "" when there is none."""
        topics = self.cluster.topics
        return self.world.random.choice(topics) if topics else ""

    def do_add_partitions(self) -> None:
        """A topic gets one more."""
        name = self._topic()
        if name and len(self.cluster.topic(name).replicas) < 4:
            last = len(self.cluster.topic(name).replicas)
            self.cluster.add_partitions(name, {last: self._assignment(1)[0]})

    def do_move_back(self) -> None:
        """A topic's replicas leave a broker, which may be away then, and come back, perhaps after its disk was lost."""
        name, broker = self._topic(), self._any()
        if not name:
            return
        before = dict(self.cluster.topic(name).replicas)
        others = [number for number in self.cluster.brokers if number != broker.number]
        without = {
            index: [one for one in some if one != broker.number] or [self.world.random.choice(others)]
            for index, some in before.items()
        }
        if self.world.chance(0.6):
            broker.die("is killed while its replicas move")
            self._soon(4.0, lambda: self._return(broker))
        self.cluster.move(name, without)

        def back() -> None:
            if name in self.cluster.topics and len(self.cluster.topic(name).replicas) == len(before):
                self.cluster.move(name, before)

        self._soon(4.0, back)

    def _return(self, broker: Any) -> None:
        """With what it had, or with nothing, if no ISR counts on it."""
        counts = any(broker.number in state.isr for state in self.cluster.invariants.states.values())
        if not broker.up and not counts and self.world.chance(0.5):
            self.world.say(f"broker {broker.number} has lost its disk")
            broker.disk.wipe()
        self._start(broker)

    def do_remake_while_away(self) -> None:
        """A topic is deleted and made again under its name; a broker is away for some of that."""
        name, broker = self._topic(), self._any()
        if name:
            broker.die("is killed while a topic goes")
            self._soon(1.0, lambda: self.cluster.delete_topic(name))
            self._soon(4.0, lambda: self._start(broker))
            for _ in range(3):
                self._soon(5.0, lambda: self.create(name))

    def do_elect(self) -> None:
        """Some that are in sync lead, as after an assignment in another order and an election of the preferred."""
        random = self.world.random

        def elect(elected: Any) -> None:
            state = elected.leadership
            for partition in state.partitions():
                now = state.standings.get(partition)
                able = sorted(state.online(partition) & set(now.isr)) if now is not None else []
                if len(able) > 1 and random.random() < 0.7:
                    leader = random.choice(able)
                    elected.settle(lambda one=partition, leader=leader: self._led_by(state, one, leader))  # type: ignore[misc]

        self._in_office(elect)

    @staticmethod
    def _led_by(state: Any, partition: Any, leader: int) -> list[Any]:
        now = state.standings.get(partition)
        if now is None or leader not in now.isr or leader not in state.online(partition):
            return []
        change = state.change(partition, leader, now.isr)
        return [] if change is None else [change]

    def _in_office(self, action: Callable[[Any], object]) -> None:
        for broker in self.cluster.brokers.values():
            if broker.up and broker.controller is not None and broker.controller.owner.elected is not None:
                self.world.after(0.0, broker.loop, lambda one=broker.controller: self._attempt(one, action))  # type: ignore[misc]

    def _attempt(self, controller: Any, action: Callable[[Any], object]) -> None:
        elected = controller.owner.elected
        if elected is not None and not elected._stale:
            elected.attempt(lambda: action(elected))
            controller.loop.go_on()
