"""Replication on the follower's and on the leader's side, without sockets."""
