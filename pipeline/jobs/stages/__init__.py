"""`stages`: streaming queries from topic to topic that a TOML file declares.

command       the command line
declaration   the file, checked as far as possible without Spark
steps         what a stage does to its rows
analysis      the steps on empty frames: Spark's objections
running       the queries, and the topics that they read and write
"""
