"""Record formats of Kafka, magic 0 to 2: codecs, building, reading, conversion, validation.

Pure functions over bytes and memoryviews. No sockets, no files, no clock: the caller passes in the current time.
A record is always the same 5-tuple (a class per record would cost more than the parsing):

    (offset, timestamp, key, value, headers)

offset absolute; timestamp in ms, -1 when it has none (magic 0); key and value `bytes | None`;
headers a sequence of `(bytes, bytes | None)`, always empty below magic 2.

    errors        RecordError with Kafka's error codes for records
    codecs        gzip, snappy, lz4, zstd, each with a bound on its output
    varint        zig-zag varints
    batch_v2      magic 2: header, build, iterate, check, repack
    control       end-of-transaction markers
    message_sets  magic 0 and 1
    record_times  the timestamp at an offset
    convert       up (produce from old clients) and down (fetch by old clients)
    validate      a leader's checks before it appends, off the fast path
"""
