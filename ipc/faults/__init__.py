"""Faults that a program wants of the broker that it has started for tests."""
