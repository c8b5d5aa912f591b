"""The order in which other processes see stores to shared memory.

Two orders matter. Other processes must see published data before the word that publishes it, and later writes not
before that word (ipc.slots, ipc.metadata, ipc.region). And when two processes each store one word and then load the
word of the other (a waiter's byte and the log end), at least one of the two must see the other's store.

x86 keeps stores in order, and loads in order (TSO): the first order needs nothing there. Only a later load may overtake
a store; an instruction with the lock prefix prevents that: `fence`, and any system call that takes a lock in the
kernel, for example releasing a partition's lock before reading its waiters.

Other machines (aarch64) keep neither. There a publisher calls `barrier` after it stores the data, and again after the
word that publishes them. It is membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED: each running thread of every registered
process executes a full barrier before the call returns; a thread that does not run has executed one when it was
switched out. So the call cuts the program of each reader at one point: the reader's accesses before the cut come first,
those after the cut come later and see everything that the caller stored before the call.
- A reader that loads the published word loads it after the cut of the first barrier, and its later loads too: it sees
  all published data. A reader that loads a word of the copy written next does so after the cut of the second barrier:
  it finds the sequence changed when it checks again, and reads again.
- The publisher reads the waiters after the call, so it sees a waiter that stores its byte before its cut of the second
  barrier; a waiter that stores it after the cut sees the published word. `fence` on the waiter's side is one more
  barrier, for publishers that only read.
Readers have no barrier of their own, and run the same code on all machines; a publisher pays 1 to 5 µs.

Data that is read and written only under a partition's lock (ipc.producers, ipc.replicas) needs nothing here: one holder
releases the kernel's own lock around F_OFD_SETLK and the next acquires it. The same holds for messages over sockets,
including doorbell rings. Single words say nothing about others.
Crash rule: a process is killed between two instructions, and its stores before that count as stored on any machine.
"""

from __future__ import annotations

import os
import threading

TSO = os.uname().machine in ("x86_64", "i686", "i386")  # tests override it to run the other path on x86

_lock = threading.Lock()


def register() -> None:
    """Register this process for the barriers of all others, before it reads shared memory. NoBarrier (an OSError)."""
    from odradek.ipc import membarrier

    membarrier.register()


def barrier() -> None:
    """Make earlier stores visible before any later store or load. NoBarrier."""
    from odradek.ipc import membarrier

    membarrier.barrier()


def ordered() -> None:
    """Make earlier stores visible before any later store."""
    if not TSO:
        barrier()


def fence() -> None:
    """Make earlier stores visible before any later load.

    On x86 any atomic read-modify-write does that. Taking a free Python lock is one (a compare-and-exchange with the
    lock prefix, in glibc's sem_trywait and in musl's), and costs a quarter of a lock in the kernel.
    """
    if TSO:
        with _lock:
            pass
    else:
        barrier()


if not TSO:
    register()
    os.register_at_fork(after_in_child=register)
