"""The metadata that the controller sends to brokers, and the snapshot of it that every process reads."""
