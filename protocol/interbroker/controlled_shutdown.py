"""ControlledShutdown (key 7): a broker requests that the controller moves its leaderships before it stops.

v2 adds broker epochs (KIP-380). The request header of v0 has no client id.
"""

from odradek.protocol.messages import Schema

SCHEMA = Schema(
    key=7,
    name="ControlledShutdown",
    last=3,
    flexible=3,
    request="""
    broker_id int32
    broker_epoch int64 2+ =-1
    """,
    response="""
    error_code int16
    remaining_partitions []RemainingPartition
        topic_name string
        partition_index int32
    """,
)
