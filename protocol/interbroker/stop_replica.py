"""StopReplica (key 5): the controller makes a broker stop replicating partitions, and optionally delete them.

v1 adds broker epochs (KIP-380) and grouping by topic, v3 leader epochs and a delete flag for each partition (KIP-570),
v4 KRaft controllers (KIP-866).
"""

from odradek.protocol.messages import Schema

SCHEMA = Schema(
    key=5,
    name="StopReplica",
    last=4,
    flexible=2,
    request="""
    controller_id int32
    is_kraft_controller bool 4+
    controller_epoch int32
    broker_epoch int64 1+ =-1
    delete_partitions bool 0-2
    ungrouped_partitions []Partition 0
        topic_name string
        partition_index int32
    topics []Topic 1-2
        name string
        partition_indexes []int32
    topic_states []TopicState 3+
        topic_name string
        partition_states []PartitionState
            partition_index int32
            leader_epoch int32 =-1
            delete_partition bool
    """,
    response="""
    error_code int16
    partition_errors []PartitionError
        topic_name string
        partition_index int32
        error_code int16
    """,
)
