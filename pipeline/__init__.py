"""Topics in Spark: the data source `odradek` for PySpark, and the jobs made of it.

It speaks Kafka's protocol with any broker; only `segments` opens the files of a broker on the same machine.
"""
