"""Counts records in every tier by topic and time: what producers had acknowledged, the log, the archive, stages.

produced    the messages of producers
counting    the log and the archive, by Spark
verdict     what the tiers do not agree in
report      a table, or lines of JSON
"""
