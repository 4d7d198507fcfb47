"""Both log formats: one line per reconcile, and no secrets."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tonnage.controller.log_lines import configure_logging

RECONCILED = {
    "key": "chat/llama",
    "result": "success",
    "seconds": 0.123,
    "writes": ["apply Deployment chat/llama", "apply Service chat/llama"],
    "requeue_seconds": None,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "tonnage", "urllib3")]
    handlers, levels = loggers[0].handlers[:], [logger.level for logger in loggers]
    yield
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def written(form: str, stream: io.StringIO | None = None) -> str:
    """The log of one reconcile in this format."""
    stream = stream or io.StringIO()
    configure_logging("info", form, stream=stream)
    logging.getLogger("tonnage.controller").info("reconciled", extra=RECONCILED)
    return stream.getvalue()


def test_a_reconcile_is_one_readable_line_on_the_console() -> None:
    (line,) = written("console").splitlines()
    assert line.endswith(
        "INFO     reconciled key=chat/llama result=success seconds=0.123"
        " writes=[apply Deployment chat/llama, apply Service chat/llama]"
    )


def test_a_reconcile_is_one_json_object_by_default() -> None:
    (line,) = written("json").splitlines()
    assert json.loads(line).items() >= RECONCILED.items()


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in written("console")
    assert "\x1b[" in written("console", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in written("console", Terminal())


def test_long_lines_are_not_wrapped_and_control_characters_are_escaped() -> None:
    stream = io.StringIO()
    configure_logging("info", "console", stream=stream)
    logging.getLogger("tonnage.x").warning("said\n\x1b[2J %s", "x" * 300)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(f"WARNING  said \\x1b[2J {'x' * 300}")


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_redacted_everywhere(form: str) -> None:
    stream = io.StringIO()
    configure_logging("debug", form, stream=stream)
    planted = "http://user:swordfish@hub/x"
    log = logging.getLogger("tonnage.x")
    log.debug("asked %s", planted, extra={"settings": {"urls": (planted, [planted])}})
    log.info("odd", extra={"odd": Exception(planted)})
    try:
        raise ValueError(planted)
    except ValueError:
        log.exception("failed")
    logging.getLogger("urllib3").warning("retrying %s", planted)
    assert "swordfish" not in stream.getvalue()
    assert stream.getvalue().count("***@hub/x") >= 5


@pytest.mark.parametrize("form", ["json", "console"])
def test_known_secrets_are_redacted_outside_their_url_too(form: str) -> None:
    stream = io.StringIO()
    configure_logging("info", form, stream=stream, secrets=["swordfish"])
    log = logging.getLogger("tonnage.x")
    log.info("user u with swordfish", extra={"parts": ["swordfish"], "odd": Exception("swordfish")})
    assert "swordfish" not in stream.getvalue()


def test_libraries_log_from_level_warning_up() -> None:
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    logging.getLogger("kopf").info("an event")
    logging.getLogger("tonnage.x").debug("a detail")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["a detail"]
