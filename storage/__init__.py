"""The log: partitions on disk in Kafka's format, shared by all worker processes.

Appending and reading (`partition`, `append`, `read`, `roll`, `trim`, `repair`) use the partition's shared slot;
formats and recovery (`scan`, `recovery`, `checkpoints`, `check`, …) are functions over files alone.
"""
