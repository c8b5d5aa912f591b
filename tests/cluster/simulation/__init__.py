"""A whole cluster in one thread on a simulated clock: our decision code, everything around it simulated.

    history.py     one history: a seed → faults, clients, healing, and the invariants after each step
    world.py       the clock and the events; processes that are killed, stopped, or interrupted while they wait
    faults/        the faults, and when each of them happens
    broker.py      a broker: its processes and its restarts       serving.py  the answers of its workers
    loops.py       its controller process and its replicator      sockets.py  their sockets
    cuts.py        truncations outside the replicator's loop
    tree.py        ZooKeeper          session.py  its clients     network.py  connections and their losses
    disk.py        logs               store.py    operations on logs          memory.py   slots, locks, shared memory
    seams.py       replaces sockets, files and the clock in the real modules
    invariants.py  the invariants, checked after each step        clients.py  producers

The real classes run in it: Member, Candidate, ControllerLease, Elected and its parts, BrokerRequests, Peer,
ControllerRequests, ReplicaManager, SlotAllocator, IsrKeeper, ControlledShutdown, DynamicConfigs and join;
ControllerContext and all pure decisions; storage.log.leader_or_follower; a follower's Replicator, LeaderFetcher, Link,
PartitionFetchStates, appends and truncations; a worker's view of followers (workers.fetch.follower_fetch,
workers.fetch.follower_progress) and of acks=all (workers.produce.acks_all).

    .venv/bin/python -m tests.cluster.simulation SEED [steps]
"""
