"""TLS of a listener: contexts from settings, checks before a start, reload, principals of certificates."""
