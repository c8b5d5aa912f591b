"""Topics in Spark: the data source `odradek` for PySpark, and the jobs made of it.

    source, options   what Spark loads, and what can be said to it
    reading           which offsets a batch reads, in how many pieces; a piece's bytes from files or the wire
    decoding          bytes of a log to Arrow
    writing           rows to records, sent and acknowledged
    wire              the cluster: its connections, its questions, its data
    jobs              archive, restore, stages, audit: what `odradek pipeline` runs
    session, java     a Spark session, and the Java it runs on
    auditing          what producers say they sent: for them, without Spark

It speaks Kafka's protocol with any broker; only `reading.segments` opens the files of a broker on the same machine.
"""
