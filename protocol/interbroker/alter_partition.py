"""AlterPartition (key 56): a leader asks the controller for another ISR (KIP-497).

v1 knows recovery from unclean elections (KIP-704), v2 topic ids instead of names (KIP-841), v3 the epochs of the
brokers in the ISR (KIP-903).
"""

from odradek.protocol.interbroker.messages import Schema

SCHEMA = Schema(
    key=56,
    name="AlterPartition",
    last=3,
    flexible=0,
    request="""
    broker_id int32
    broker_epoch int64 =-1
    topics []Topic
        topic_name string 0-1
        topic_id uuid 2+
        partitions []Partition
            partition_index int32
            leader_epoch int32
            new_isr []int32 0-2
            new_isr_with_epochs []BrokerState 3+
                broker_id int32
                broker_epoch int64 =-1
            leader_recovery_state int8 1+
            partition_epoch int32
    """,
    response="""
    throttle_time_ms int32
    error_code int16
    topics []Topic
        topic_name string 0-1
        topic_id uuid 2+
        partitions []Partition
            partition_index int32
            error_code int16
            leader_id int32
            leader_epoch int32
            isr []int32
            leader_recovery_state int8 1+
            partition_epoch int32
    """,
)
