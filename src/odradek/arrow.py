"""Topics as Arrow tables, from any Kafka: `read`, `fragments`, `follow` and `write`; docs/arrow.md describes them.

The code is in `odradek.arrowtables`: a top folder of the repository named `arrow` would hide the library of that name
from every program that starts there.
"""

try:
    import pyarrow  # noqa: F401  # to name what installs it
except ImportError as missing:
    raise ImportError("odradek.arrow needs pyarrow: pip install 'odradek[arrow]'") from missing

from odradek.arrowtables.follow import follow
from odradek.arrowtables.forms import Avro, Json, Text
from odradek.arrowtables.fragment import Fragment
from odradek.arrowtables.read import fragments, read
from odradek.arrowtables.write import write
from odradek.pipeline.errors import DataLoss, OptionError, PipelineError, UnknownTopic, Unreadable

__all__ = [
    "Avro",
    "DataLoss",
    "Fragment",
    "Json",
    "OptionError",
    "PipelineError",
    "Text",
    "UnknownTopic",
    "Unreadable",
    "follow",
    "fragments",
    "read",
    "write",
]
