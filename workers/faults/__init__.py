"""Faults on request of the program that started the broker (ipc.faults); production brokers do not load this."""
