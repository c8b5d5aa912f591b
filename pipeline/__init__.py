"""Kafka topics in Spark: the data source `odradek` for PySpark, and the jobs built on it.

    source            the data source that Spark loads
    reading           offset ranges of a batch, their split into tasks, and reading them from files or over the wire
    decoding          log bytes to Arrow
    writing           rows to records, sent and acknowledged
    wire              the Kafka client: connections, requests, fetches
    jobs              archive, restore, stages, audit: what `odradek pipeline` runs
    session, java     a Spark session, and the Java it runs on
    auditing          counts of acknowledged records, for producers, without Spark

`odradek.arrow` uses reading, decoding, writing and wire without Spark: what they import must not need PySpark, but for
the classes that Spark calls (batch, stream, writer).

It speaks Kafka's protocol with any broker; only `reading.segments` opens the files of a broker on the same machine.
"""
