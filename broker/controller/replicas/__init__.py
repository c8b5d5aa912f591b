"""This broker's replicas: their directories and slots, and what the elected controller orders."""
