"""The log handler: its state machines alone, and with real brokers that refuse, hang and die."""
