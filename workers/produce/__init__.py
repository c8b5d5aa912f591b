"""The produce path: append batches, waiting for followers and for fsync."""
