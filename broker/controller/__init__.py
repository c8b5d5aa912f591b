"""The controller process: owner of the metadata, and this broker's member of the cluster."""
