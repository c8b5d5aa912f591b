"""Topics to Parquet, by topic and hour, each record once; and the comparison of the archive with the log.

command      `odradek pipeline archive`: its command line
job, start   a run: its start and end offsets, once or continuously
sink         a batch of the stream: stage its files, move them into place, commit
columns      the columns of a record; shapes, formats, texts, avro: conversion of keys and values
staging      Spark's tasks write files, and their records are counted
skips        why offsets of a batch have no record
compaction   merges small files of an hour
store        an archive's only writer: commits are atomic, whenever it dies; lease: ensures that it is the only one
manifest     an archive's files: a fold over its commits; views: the files that Spark sees
delta        a topic's Delta table, over the same files; delta_actions: its entries for each
verify       compares the archive with the log, which consuming reads
"""
