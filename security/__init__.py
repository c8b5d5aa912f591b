"""Security as pure modules: TLS, SASL, ACLs, quotas.

They take settings, bytes, events and a clock; they open no sockets, start no processes and hold no ZooKeeper sessions.
Everything but `protocol` may import them.
"""
