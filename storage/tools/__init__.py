"""Reading log directories without a broker: `odradek check`, `odradek dump-log`, KRaft's metadata log."""
