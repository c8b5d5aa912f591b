"""The metadata tree: in ZooKeeper, embedded, and how it is laid out."""
