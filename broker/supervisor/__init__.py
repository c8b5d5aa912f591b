"""The process of `odradek start`, what it does before the first process and after the last, and its fork server."""
