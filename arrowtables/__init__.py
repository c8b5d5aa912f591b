"""Topics as Arrow tables, without Spark; the public name is `odradek.arrow`.

    read          a range of a topic as a reader of record batches, or as fragments
    follow        a topic without an end
    write         a table to a topic
    fragment      a part of a range that is read on its own, also in another process
    in_order      several fragments on threads, their batches in order, with a bound on memory
    forms         keys and values that are text, JSON or Avro
    request       the arguments of reading, as the options of the pipeline's reader
    client        settings of Kafka's clients, and errors in the words of this package

The reader and the writer are those of the Spark source (`odradek.pipeline`): this package plans with them and runs them
in threads instead of tasks.
"""
