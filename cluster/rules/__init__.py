"""What names, partitions and requests may be, and the errors that say so."""
