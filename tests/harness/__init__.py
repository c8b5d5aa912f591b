"""Shared by tests: a real broker in a subprocess, a raw protocol connection, tools of other projects."""
