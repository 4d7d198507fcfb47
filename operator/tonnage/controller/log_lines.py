"""Logs on stderr, as JSON for log stores or as text for people; both without secrets."""

import json
import logging
import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from rich.console import Console, ConsoleRenderable
from rich.logging import RichHandler
from rich.text import Text
from rich.traceback import Traceback

from tonnage.api.text import escape_controls, redact

JSON: Final = "json"
CONSOLE: Final = "console"
FORMATS: Final = (JSON, CONSOLE)

_RECORD_ATTRIBUTES: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
"""The attributes of every record. All others come from `extra`."""


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message and Tonnage's `extra` fields as one JSON object.

    Redacts `secrets`, and text that resembles a secret.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line; a value that JSON cannot represent becomes a string."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_extra_fields(record)),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        redacted = _redact_all(line, self._secrets)
        return json.dumps(redacted, default=lambda value: redact(str(value), self._secrets))


class ConsoleFormatter(logging.Formatter):
    """Writes the message and the non-empty `extra` fields as `name=value`; redacts secrets too."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line, followed by its traceback if there is one."""
        fields = (
            f"{name}={_format_value(value)}"
            for name, value in _extra_fields(record)
            if _has_value(value)
        )
        line = " ".join([" ".join(record.getMessage().split()), *fields])
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return escape_controls(redact(line, self._secrets))


class _LineHandler(RichHandler):
    """rich's handler, with a line instead of a table, which would wrap at the terminal's width."""

    def render(
        self,
        *,
        record: logging.LogRecord,
        traceback: Traceback | None,
        message_renderable: ConsoleRenderable,
    ) -> Text:
        """Render time, level and message."""
        time = datetime.fromtimestamp(record.created).astimezone()
        prefix = [Text(time.strftime("%H:%M:%S"), style="log.time"), self.get_level_text(record)]
        assert isinstance(message_renderable, Text), "render_message returns nothing else"
        return Text(" ").join([*prefix, message_renderable])


def configure_logging(
    level: str, form: str = JSON, secrets: Collection[str] = (), stream: TextIO = sys.stderr
) -> None:
    """Log to the stream. `level` applies to Tonnage's loggers; `secrets` are redacted.

    Libraries log from level warning up: kopf logs each event at debug and each start at info.
    """
    logging.basicConfig(
        level=logging.WARNING, handlers=[_build_handler(form, stream, secrets)], force=True
    )
    logging.getLogger("tonnage").setLevel(level.upper())
    # urllib3 quotes a malformed header in its warning, and a server may repeat a token there.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)


def _build_handler(form: str, stream: TextIO, secrets: Collection[str]) -> logging.Handler:
    if form == CONSOLE:
        # rich decides on colours: on a terminal, unless NO_COLOR is set.
        console = Console(file=stream, soft_wrap=True)
        handler: logging.Handler = _LineHandler(console=console)
        handler.setFormatter(ConsoleFormatter(secrets))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonFormatter(secrets))
    return handler


def _extra_fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """The `extra` fields of Tonnage's records. Libraries attach whole objects to theirs."""
    if record.name.startswith("tonnage"):
        yield from (
            (name, value) for name, value in vars(record).items() if name not in _RECORD_ATTRIBUTES
        )


def _has_value(value: object) -> bool:
    return value is not None and value != []


def _format_value(value: object) -> str:
    """Format a list by its items, and quote a string that has spaces."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if set(text) & set(" \n\"'") else text


def _redact_all(value: Any, secrets: Collection[str]) -> Any:
    """Redact each string of the value on its own, so that JSON stays valid."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list | tuple):
        return [_redact_all(part, secrets) for part in value]
    if isinstance(value, dict):
        return {name: _redact_all(part, secrets) for name, part in value.items()}
    return value
