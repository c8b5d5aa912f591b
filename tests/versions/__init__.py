"""Upgrades from each released version to this tree, and back: one broker, a cluster, a cluster under chaos."""
