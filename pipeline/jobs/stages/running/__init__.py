"""The streaming queries.

running       all queries, once or for ever
streams       one query of a stage; start_offsets: where it begins
cluster       the topics: check and create them; wait for open transactions
whole_topic   a topic as a table that each batch reads again
lateness      tells of records that came too late
"""
