"""Realistic load: locust's users on real Kafka clients, and the check that no acknowledged record is lost.

`python -m odradek.loadtest.swarm` is `make locust`. Locust itself loads `loadtest/locustfile.py`.
"""
