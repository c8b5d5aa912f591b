"""Kafka's wire protocol: hand-written codecs for Produce and Fetch, records, and APIs that the library lacks.

Imports nothing of Odradek outside this folder.
"""
