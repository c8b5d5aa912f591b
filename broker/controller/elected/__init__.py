"""The elected controller: the office, elections, reassignments, deletions, and its requests to brokers."""
