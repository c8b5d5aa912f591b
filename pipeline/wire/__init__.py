"""The Kafka client: connections, requests, and record batches in the leaders' format."""
