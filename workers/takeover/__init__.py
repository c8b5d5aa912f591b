"""A new worker takes over the connections of a running one, without a client noticing (`odradek upgrade`)."""
