"""The elected controller: its lease, elections, reassignments, deletions, and its requests to brokers."""
