"""What all processes of a broker share: entry, sockets, status, control bus, timeouts."""
