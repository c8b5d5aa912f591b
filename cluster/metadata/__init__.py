"""The metadata that brokers are told, and the snapshot of it that every process reads."""
