"""The log directories: which are there and whose, the reserve of room, whether the machine has started since."""
