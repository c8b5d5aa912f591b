"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from odradek.protocol.interbroker.messages import Schema

SCHEMA = Schema(
    key=67,
    name="AllocateProducerIds",
    last=0,
    flexible=0,
    request="""
    broker_id int32
    broker_epoch int64 =-1
    """,
    response="""
    throttle_time_ms int32
    error_code int16
    producer_id_start int64
    producer_id_len int32
    """,
)
