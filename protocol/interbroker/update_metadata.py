"""UpdateMetadata (key 6): the controller sends a broker the live brokers and the state of partitions.

v1 has several endpoints for each broker, v2 racks, v3 listener names (KIP-103), v4 offline replicas (KIP-112), v5
broker epochs (KIP-380) and grouping by topic, v7 topic ids (KIP-516), v8 KRaft controllers and whether it has all
partitions (KIP-866).
"""

from odradek.protocol.messages import Schema

SCHEMA = Schema(
    key=6,
    name="UpdateMetadata",
    last=8,
    flexible=6,
    request="""
    controller_id int32
    is_kraft_controller bool 8+
    type int8 8+ tag=0
    controller_epoch int32
    broker_epoch int64 5+ =-1
    ungrouped_partition_states []PartitionState 0-4
        topic_name string 0-4
        partition_index int32
        controller_epoch int32
        leader int32
        leader_epoch int32
        isr []int32
        zk_version int32
        replicas []int32
        offline_replicas []int32 4+
    topic_states []TopicState 5+
        topic_name string
        topic_id uuid 7+
        partition_states []PartitionState
    live_brokers []Broker
        id int32
        v0_host string 0
        v0_port int32 0
        endpoints []Endpoint 1+
            port int32
            host string
            listener string 3+
            security_protocol int16
        rack string? 2+
    """,
    response="""
    error_code int16
    """,
)
