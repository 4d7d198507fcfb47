"""Logs on stderr: JSON lines for log stores, readable lines for people; both without secrets."""

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

from tonnage.api.redact import redact
from tonnage.api.text import harmless

JSON: Final = "json"
CONSOLE: Final = "console"
FORMATS: Final = (JSON, CONSOLE)

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
"""Attributes of every record; whatever else one has was given as `extra`."""


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the fields that Tonnage gives as `extra`; without `secrets`
    and what looks like one."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """One line; what JSON cannot hold is written as its text."""
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_fields(record)),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        redacted = _redacted(line, self._secrets)
        return json.dumps(redacted, default=lambda odd: redact(str(odd), self._secrets))


class ReadableLines(logging.Formatter):
    """The message and the fields that have a value, as `name=value`; without secrets likewise."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        fields = (f"{name}={_shown(value)}" for name, value in _fields(record) if _tells(value))
        line = " ".join([" ".join(record.getMessage().split()), *fields])
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return harmless(redact(line, self._secrets))


class _LineHandler(RichHandler):
    """rich's handler with a line instead of a table, which would be broken at the width."""

    def render(
        self,
        *,
        record: logging.LogRecord,
        traceback: Traceback | None,
        message_renderable: ConsoleRenderable,
    ) -> Text:
        """Time, level and message."""
        time = datetime.fromtimestamp(record.created).astimezone()
        told = [Text(time.strftime("%H:%M:%S"), style="log.time"), self.get_level_text(record)]
        assert isinstance(message_renderable, Text), "render_message makes nothing else"
        return Text(" ").join([*told, message_renderable])


def configure_logging(
    level: str, form: str = JSON, secrets: Collection[str] = (), stream: TextIO = sys.stderr
) -> None:
    """Send everything to the stream. `level` is that of Tonnage's own loggers, `secrets` are texts
    that nobody is to be told.

    Libraries speak from warnings up: kopf tells each event at debug and each start at info.
    """
    logging.basicConfig(
        level=logging.WARNING, handlers=[_handler(form, stream, secrets)], force=True
    )
    logging.getLogger("tonnage").setLevel(level.upper())
    # It warns of a malformed header with what stands in it, and a server may repeat a token there.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)


def _handler(form: str, stream: TextIO, secrets: Collection[str]) -> logging.Handler:
    if form == CONSOLE:
        # Colours are rich's to decide: on a terminal, unless NO_COLOR is set.
        console = Console(file=stream, soft_wrap=True)
        handler: logging.Handler = _LineHandler(console=console)
        handler.setFormatter(ReadableLines(secrets))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines(secrets))
    return handler


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """What Tonnage gave as `extra`; libraries hang whole objects on their records."""
    if record.name.startswith("tonnage"):
        yield from ((name, value) for name, value in vars(record).items() if name not in _STANDARD)


def _tells(value: object) -> bool:
    return value is not None and value != []


def _shown(value: object) -> str:
    """A list as its parts, a text with spaces in quotation marks."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if set(text) & set(" \n\"'") else text


def _redacted(value: Any, secrets: Collection[str]) -> Any:
    """Every text in it redacted, each as a text of its own, so that JSON stays JSON."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list | tuple):
        return [_redacted(part, secrets) for part in value]
    if isinstance(value, dict):
        return {name: _redacted(part, secrets) for name, part in value.items()}
    return value
