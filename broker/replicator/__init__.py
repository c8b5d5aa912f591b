"""The replicator process: one fetcher for each leader."""
