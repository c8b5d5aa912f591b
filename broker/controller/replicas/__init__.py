"""This broker's replicas: their directories and slots, and the elected controller's requests."""
