"""Schemas of a registry with Confluent's REST interface: settings, client, cache, references."""
