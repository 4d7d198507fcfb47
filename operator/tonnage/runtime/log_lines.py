"""Logs as JSON, one object a line on stderr, so that a log store can filter by field."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
"""Attributes of every record; whatever else one has was given as `extra`."""


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the fields that Tonnage gives as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; what JSON cannot hold is written as its text."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name.startswith("tonnage"):  # libraries hang whole objects on their records
            line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """Send everything to stderr as JSON lines. `level` is that of Tonnage's own loggers.

    Libraries speak from warnings up: kopf tells each event at debug and each start at info.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tonnage").setLevel(level.upper())
    logging.captureWarnings(capture=True)
