"""A thousand connections that send acks=all, never retry and never reconnect, while a broker is upgraded."""
