"""Faults of the data source as a whole: what comes out is what went in, each once, whatever dies in between."""
