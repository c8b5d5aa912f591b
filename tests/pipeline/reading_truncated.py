"""A program that reads one log again and again, until both happened often: all records read, and a clear error."""

from __future__ import annotations

import sys
from pathlib import Path

from odradek.pipeline.errors import PipelineError

from .test_tables import from_files, rows_of, some_large

OFTEN = 15


def main() -> None:
    folder, views = Path(sys.argv[1]), sys.argv[2] == "views"
    expected, whole, refused = rows_of(some_large()), 0, 0
    while whole < OFTEN or refused < OFTEN:
        try:
            found = from_files(folder, expected.span, committed=True, views=views)
        except PipelineError as error:
            assert "cannot be read" in str(error), error
            refused += 1
        else:
            assert found == expected.rows
            whole += 1
    print("done")


if __name__ == "__main__":
    main()
