"""What a stage does to its rows.

plan             the steps one after the other
parse, validate, normalise, deduplicate, enrich, aggregate
                 one step each: rows in, rows out; timing: event times for those with state
avro             values of a schema registry as columns; avro_results: results as such values
records          records as read from a topic and as written to one
"""
