"""Counts records in every tier by topic and time: acknowledged to producers, in the log, in the archive, after stages.

produced    the messages of producers
counting    the log and the archive, by Spark
verdict     the differences between the tiers
report      a table, or lines of JSON
"""
