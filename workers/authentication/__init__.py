"""Who is at the other end of a connection: TLS handshakes and SASL exchanges, before the loop takes its requests."""
