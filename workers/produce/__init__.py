"""The way of a produced batch: rounds, waiting for followers and for the disk."""
