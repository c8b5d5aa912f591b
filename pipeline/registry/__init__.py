"""Schemas of a registry with Confluent's REST interface: where it is, what it says, what may be told of it."""
