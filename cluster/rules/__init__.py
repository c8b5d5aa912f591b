"""Limits on names, partitions and replicas, and the errors for exceeding them."""
