"""The one exception of this package, and the Kafka error codes it carries."""

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
INVALID_TIMESTAMP = 32
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87


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
