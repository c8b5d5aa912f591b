"""The TOML file, checked as far as possible without Spark.

declaration     the stages and what they declare; tables: its tables and values, mistakes: what is wrong with them
order           the order in which the stages run once
json_schema     a JSON Schema as Spark's types
avro_declared   values of a schema registry
sql             fragments of Spark SQL, and the steps' own columns
"""
