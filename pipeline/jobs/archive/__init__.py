"""Topics to Parquet, by topic and hour, each record once; and the archive compared with the log.

command      `odradek pipeline archive`: what is said on its command line
job, start   a run: from where to where, all there is or on and on
sink         a batch of the stream: staged, put into place, entered
columns      what is written of a record; shapes, formats, texts, avro: what keys and values become
staging      Spark's tasks write files, and what is in them is counted
skips        why offsets of a batch have no record
compaction   small files of an hour become larger ones
store        an archive's only writer: commits carried out whole, whenever it dies; lease: that it is the only one
manifest     which files an archive consists of: a fold over its commits; views: what Spark sees of them
delta        a topic's Delta table, over the same files; delta_actions: what it says of each
verify       the archive beside the log, which consuming reads
"""
