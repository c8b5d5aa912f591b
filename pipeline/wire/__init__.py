"""The cluster over its sockets: connections, questions, record batches as the leaders keep them."""
