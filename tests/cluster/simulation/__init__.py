"""A whole cluster in one thread on a simulated clock: our decision code, everything around it simulated.

    history.py     one history: a seed → faults, clients, healing, and the invariants after each step
    world.py       the clock and the events; processes that are killed, stopped, or interrupted while they wait
    faults/        what goes wrong, and when
    broker.py      a broker: its processes, each life of it       serving.py  what its workers answer
    loops.py       its controller process and its replicator      sockets.py  their sockets
    cuts.py        truncations beside the replicator's loop
    tree.py        ZooKeeper          session.py  its clients     network.py  connections and their losses
    disk.py        logs               store.py    what is done to them        memory.py   slots, locks, shared memory
    seams.py       where the real modules find all this: instead of sockets, files and the clock
    invariants.py  what must be so after each step                clients.py  producers

Real are: Member, Candidate, Office, Elected and its parts, Telling, Peer, Orders, Replicas, SlotBook, IsrKeeper,
Leaving, TreeConfigs and enrolment; Leadership and all pure decisions; storage.log.leader_or_follower; a follower's
Replicator, Leader, Link, Following, copies and cuts; what workers know of followers (workers.fetch.follower_fetch,
workers.fetch.follower_progress) and of acks=all (workers.produce.acks_all).

    .venv/bin/python -m tests.cluster.simulation SEED [steps]
"""
