"""The steps on empty frames, before anything runs.

analysis   Spark's objections to the expressions of all stages; dry_run: to those of one
outputs    the schemas of results, registered
"""
