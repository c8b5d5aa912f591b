"""What is wrong with a running broker, and what mends it: for `odradek status` and `odradek top`."""
