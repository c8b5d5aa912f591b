"""The controller process: the owner of the metadata, and the broker's place in its cluster."""
