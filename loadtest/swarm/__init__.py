"""Load as users make it: locust's users over real Kafka clients, and the proof that nothing acknowledged was lost.

`python -m odradek.loadtest.swarm` is `make locust`. `loadtest/locustfile.py` is what locust itself loads.
"""
