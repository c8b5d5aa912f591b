"""Exit codes and the errors that carry them: one line for the user, one number for the supervisor."""

OK = 0
FAILED = 1
FATAL_BOOT = 3  # when a broker starts: a retry cannot help, no supervisor, ours or systemd, should try
INTERRUPTED = 130


class OdradekError(Exception):
    """Something the user can act on; the text says what to change."""

    exit_code = FAILED


class BootError(OdradekError):
    """A process that cannot start as it is configured, now or on the next try."""

    exit_code = FATAL_BOOT


class NotRunning(OdradekError):
    """No broker serves the data directory that a command was given."""
