"""The comparison of an archive with the log.

verify       the files and the records of the topics, and what is said of them
comparison   a topic's records by partition; differences: the result
consuming    reads the log with another client
checksums    numbers of records and sums of their checksums
"""
