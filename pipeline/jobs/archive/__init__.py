"""Topics to Parquet, by topic and hour, each record once; and the comparison of the archive with the log.

command   `odradek pipeline archive`: its command line
job       a run: once or continuously; latest: the schemas that a registry has for it
sink      a batch of the stream becomes files of the archive
store     an archive's files, and its only writer
formats   conversion of keys and values
verify    compares the archive with the log
"""
