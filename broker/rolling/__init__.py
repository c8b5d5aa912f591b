"""Replaces the workers of a running broker by ones of the code that is installed now (`odradek upgrade`)."""
