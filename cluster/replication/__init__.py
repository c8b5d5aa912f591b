"""A follower's and a leader's side of replication, without sockets."""
