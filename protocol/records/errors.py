"""The one exception of this package; the codes it carries are those of odradek.protocol.errors."""


class RecordError(Exception):
    """Records that cannot be accepted, read or converted.

    code: Kafka's error number (protocol documentation, "Error Codes").
    message: one sentence for the client (`error_message` of Produce v8+) and the log.
    record_errors: `[(index in the batch, sentence), …]` for `record_errors` of Produce v8+ (KIP-467).
    """

    def __init__(self, code: int, message: str, record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []
