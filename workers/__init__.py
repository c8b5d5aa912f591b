"""The worker process: its event loop, the connections it serves, and one file for each Kafka API in `apis/`."""
