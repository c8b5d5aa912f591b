"""Requests that the coordinator or the controller answers."""
