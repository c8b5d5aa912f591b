"""The acceptor process."""
