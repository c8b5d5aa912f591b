"""`stages`: from topic to topic by streaming queries that a TOML file declares.

declaration, tables   the file, checked as far as it can be without Spark
json_schema           a JSON Schema as Spark's types
avro_declared, avro, avro_results, outputs
                      values of a schema registry: declared, read, written, registered
parse, validate, normalise, deduplicate, enrich, aggregate
                      one step each: rows in, rows out
records               what is read of a topic and written to one
plan                  a stage's steps one after the other
analysis              the same on empty frames: what Spark has against the expressions
cluster               the topics: are they there, are they to be made; is all decided
begin                 where a stage's query began
command               the command line
"""
