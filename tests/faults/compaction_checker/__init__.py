"""Compares a compacted topic with a ledger of what was written, while processes are killed."""
