"""Faults, and operations of administrators meanwhile. A history has only some kinds, so that these often coincide.

schedule.py   which kinds, and when          kinds.py           common to all of them
zookeeper.py  disks.py  processes.py         administrators.py  elections.py
connections.py  orders.py
"""

from .schedule import Faults as Faults
