"""The producer state of a log, as rebuilt from batches and as kept in files."""
