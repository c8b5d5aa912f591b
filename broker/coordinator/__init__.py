"""The coordinator process: groups, transactions, their internal topics, and markers."""
