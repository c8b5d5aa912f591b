"""Requests and record bytes made by hand, for what no well-behaved client sends."""
