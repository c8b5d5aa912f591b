"""What every process of a broker shares: its beginning, its sockets, its status, the control bus, its timeouts."""
