"""Client quotas as a worker applies them: one rate for all workers of the broker, and the throttle times of clients."""
