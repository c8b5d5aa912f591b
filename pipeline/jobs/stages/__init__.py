"""`stages`: streaming queries from topic to topic that a TOML file declares.

declaration, tables   the file, checked as far as possible without Spark
json_schema           a JSON Schema as Spark's types
avro_declared, avro, avro_results, outputs
                      values of a schema registry: declared, read, written, registered
parse, validate, normalise, deduplicate, enrich, aggregate
                      one step each: rows in, rows out
records               records as read from a topic and as written to one
plan                  a stage's steps one after the other
analysis              the same on empty frames: Spark's objections to the expressions
cluster               the topics: check and create them; wait for open transactions
begin                 the start offsets of a stage's query
command               the command line
"""
