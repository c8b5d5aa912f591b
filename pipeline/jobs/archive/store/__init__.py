"""The files of an archive, and its only writer.

store      commits, which are atomic, whenever the writer dies; lease: ensures that it is the only one
manifest   an archive's files: a fold over its commits
contents   the records in these files, for readers
views      the files that Spark sees
delta      a topic's Delta table, over the same files; delta_actions: its entries for each
"""
