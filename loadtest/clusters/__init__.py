"""Clusters of three brokers: the work on them, and the measurements."""
