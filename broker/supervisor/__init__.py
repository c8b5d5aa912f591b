"""The process of `odradek start`, its steps before the first process and after the last, and its fork server."""
