"""Odradek, a Kafka-compatible message broker. Its packages are the top folders of the repository, linked here."""
