"""Which offsets a batch of Spark reads and in how many pieces; a piece out of a leader's files or over the wire."""
