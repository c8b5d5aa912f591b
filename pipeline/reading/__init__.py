"""Plan the offset ranges of a Spark batch and their pieces; read a piece from the leader's files or over the wire."""
