"""The nodes of the metadata tree that have ACLs, users and tokens: read, published, changed."""
