"""File names, small text files, writes that are atomic under a power failure, disk errors."""
