"""Odradek inside other programs: a broker for tests and scripts, and pytest's fixtures of it."""
