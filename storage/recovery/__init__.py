"""Opening a partition's directory after a stop or a crash, before anything else reads it."""
