"""A handler for Python's `logging` that sends records to a topic; its public name is `odradek.logging`.

    handler           what `logging` calls: formats a record and puts it into the queue
    json_formatter    a record as one JSON object
    backlog           the queue, its batches and counters: a state machine without thread, socket or clock
    reports           what the handler says about drops and failures, and when: a state machine as well
    sender            the thread that takes from the queue and sends; one a process
    topic_producer    an idempotent producer for one topic over the connections of `odradek.pipeline.wire`
    handler_settings  the settings of a producer, under Kafka's names

Why it has a producer of its own. KafkaProducer of kafka-python has a second queue and a second thread behind the
handler's, blocks in its constructor until a broker answers, gives up all that an idempotent producer sends after one
record that is too large, and its `close()` in a forked child waits for a thread that the child does not have.
librdkafka's instances must not be used after a fork, not even to end them, and its queue accepts what the handler would
have to count. Here one thread has one request under way, so what is left is a batch with a sequence number: the
repository has batches, connections, TLS and SASL already.
"""
