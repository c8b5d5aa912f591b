"""The way of a batch into the archive.

start        where a run begins
sink         stage the files of a batch, move them into place, commit
columns      the columns of a record
staging      Spark's tasks write files, and their records are counted; direct: the reading tasks write them
skips        why offsets of a batch have no record
compaction   merges small files of an hour
"""
