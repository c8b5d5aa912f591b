"""Real brokers on a real ZooKeeper, with random faults under load, and a verdict: see tests/CHAOS.md."""
