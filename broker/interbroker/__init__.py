"""Connections to other brokers and to ZooKeeper."""
