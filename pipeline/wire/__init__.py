"""The Kafka client: connections, requests, and record batches in the leaders' format."""

from odradek.pipeline.wire import crc_package

crc_package.load()
