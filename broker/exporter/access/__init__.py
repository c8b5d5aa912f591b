"""Who may read what the exporter serves: TLS, users and their ACLs, where a listener of it has SASL_SSL."""
