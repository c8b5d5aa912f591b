"""Rows of Spark as records: what they become, where they go, how they are sent."""
