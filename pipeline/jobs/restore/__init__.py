"""An archive back to topics: each record once, in order.

restore     `odradek pipeline restore`: its command line, and a run
restoring   the plan for a topic: its offsets, its target and the steps
merging     the order of records by key
targets     the topics that get the records
"""
