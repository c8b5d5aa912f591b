"""Clusters of three brokers: what is done to them, and what is measured."""
