"""TLS and SASL of a worker."""
