"""One file for each Kafka API, named by its key; each declares its row in `API` (see workers.dispatch.api)."""
