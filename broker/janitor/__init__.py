"""The janitor process: retention, the log cleaner, free space, checkpoints."""
