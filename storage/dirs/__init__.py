"""The log directories: their state and owner, the disk reserve, whether the machine has restarted since."""
