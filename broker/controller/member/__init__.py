"""This broker as a member of a cluster: registration, ISRs, its configs, leaving."""
