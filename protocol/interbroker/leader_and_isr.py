"""LeaderAndIsr (key 4): the controller sends a broker the partitions that it leads and follows.

v1 adds new replicas, v2 broker epochs (KIP-380) and grouping by topic, v3 reassignment (KIP-455), v5 topic ids and
whether it has all topics (KIP-516), v6 recovery from unclean elections (KIP-704), v7 KRaft controllers (KIP-866).
"""

from odradek.protocol.messages import Schema

SCHEMA = Schema(
    key=4,
    name="LeaderAndIsr",
    last=7,
    flexible=4,
    request="""
    controller_id int32
    is_kraft_controller bool 7+
    controller_epoch int32
    broker_epoch int64 2+ =-1
    type int8 5+
    ungrouped_partition_states []PartitionState 0-1
        topic_name string 0-1
        partition_index int32
        controller_epoch int32
        leader int32
        leader_epoch int32
        isr []int32
        partition_epoch int32
        replicas []int32
        adding_replicas []int32 3+
        removing_replicas []int32 3+
        is_new bool 1+
        leader_recovery_state int8 6+
    topic_states []TopicState 2+
        topic_name string
        topic_id uuid 5+
        partition_states []PartitionState
    live_leaders []LiveLeader
        broker_id int32
        host_name string
        port int32
    """,
    response="""
    error_code int16
    partition_errors []PartitionError 0-4
        topic_name string 0-4
        partition_index int32
        error_code int16
    topics []TopicError 5+
        topic_id uuid
        partition_errors []PartitionError
    """,
)
