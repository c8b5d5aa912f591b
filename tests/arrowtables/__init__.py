"""Topics as Arrow tables: the machine of threads, the arguments and the forms alone, and reads of real brokers."""
