"""Client quotas as in Kafka: which client has which quota, what requests change, and how long a client is throttled."""
