"""This broker as a member of a cluster: registration, ISRs, configs, controlled shutdown."""
