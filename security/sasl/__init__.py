"""SASL as machines: the exchange of a connection, the mechanisms on both sides, and the credentials they check."""
