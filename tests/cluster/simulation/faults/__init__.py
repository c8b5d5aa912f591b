"""What goes wrong, and what people do meanwhile. Each history has some kinds of it only, so that they meet often.

schedule.py   which kinds, and when          kinds.py           what all of them have in common
zookeeper.py  disks.py  processes.py         administrators.py  elections.py
connections.py  orders.py
"""

from .schedule import Faults as Faults
