"""In which order other processes see what one stores in shared memory.

Two orders are needed. What is published must be seen before the word that publishes it, and what is written next not
before it (ipc.slots, ipc.metadata, ipc.region). And who stores one word and then loads another that its counterpart
stores before it loads the first (a waiter's byte and the log end) must not miss it: one of the two sees the other's.

x86 keeps stores in order, and loads in order (TSO): the first needs nothing there. Only a store may be overtaken by a
later load, which an instruction with the lock prefix ends: `fence`, and any system call that takes a lock in the
kernel, such as giving back a partition's lock before looking at its waiters.

Other machines (aarch64) keep neither. There `barrier` is called after what is published is stored, and again after
the word that publishes it. It is membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED: each running thread of every process
that has registered executes a full barrier before the call returns; one that does not run has executed one when it was
switched out. So the program of each reader is cut at some point during the call: what it does before that point is
before, what it does behind it is behind, and sees all that the caller stored before the call.
- A reader that loads the published word loads it behind the cut of the first barrier, and what it loads next too: it
  sees all of what is published. One that loads a word of the copy written next does so behind the cut of the second
  barrier: it finds the sequence changed when it looks again, and reads again.
- A waiter that stores its byte before its cut of the second barrier is seen by the publisher, which looks behind the
  call; one that stores it behind the cut sees the published word. `fence` on its side is one more barrier, for those
  who only look.
Readers have no barrier of their own, and run the same code on all machines; who publishes pays 1 to 5 µs.

What is only read and written under a partition's lock (ipc.producers, ipc.replicas) needs nothing here: the kernel's
own lock around F_OFD_SETLK is released by one and acquired by the next. So it is with messages over sockets, rings of
doorbells among them. Single words say nothing about others.
Crash rule: a process is killed between two instructions, and what it stored before counts as stored on any machine.
"""

from __future__ import annotations

import os
import platform
import threading

TSO = platform.machine() in ("x86_64", "i686", "i386")  # tests say otherwise to go the other way on x86

_lock = threading.Lock()


def register() -> None:
    """Have this process take part in all others' barriers, before it reads shared memory. NoBarrier (an OSError)."""
    from odradek.ipc import membarrier

    membarrier.register()


def barrier() -> None:
    """What was stored is seen before anything is stored or loaded next. NoBarrier."""
    from odradek.ipc import membarrier

    membarrier.barrier()


def ordered() -> None:
    """What was stored is seen before what is stored next."""
    if not TSO:
        barrier()


def fence() -> None:
    """What was stored is seen before anything is loaded next.

    On x86 any atomic read-modify-write does that. Taking a free lock of Python's is one (a compare-and-exchange with
    the lock prefix, in glibc's sem_trywait as in musl's), and costs a quarter of one in the kernel.
    """
    if TSO:
        with _lock:
            pass
    else:
        barrier()


if not TSO:
    register()
    os.register_at_fork(after_in_child=register)
