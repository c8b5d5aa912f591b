"""Real brokers on a real ZooKeeper, ill-treated in every way under load, and judged: see tests/CHAOS.md."""
