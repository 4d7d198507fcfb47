"""One JSON object a line, whatever is logged."""

import json
import logging
import sys
from typing import Any

from tonnage.runtime.log_lines import JsonLines


def line(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines().format(record)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def record(message: str, *arguments: object, name: str = "tonnage.x", **extra: Any) -> Any:
    made = logging.LogRecord(name, logging.INFO, "f.py", 1, message, arguments, None)
    made.created = 1767225600.5
    for key, value in extra.items():
        setattr(made, key, value)
    return made


def test_line_has_time_level_logger_and_message() -> None:
    assert line(record("hello %s", "world")) == {
        "time": "2026-01-01T00:00:00.500Z",
        "level": "info",
        "logger": "tonnage.x",
        "message": "hello world",
    }


def test_extra_fields_are_fields() -> None:
    assert line(record("x", key="chat/llama", writes=["a"]))["writes"] == ["a"]


def test_what_json_cannot_hold_is_told_as_text() -> None:
    assert line(record("x", odd={1}))["odd"] == "{1}"


def test_objects_that_libraries_hang_on_records_are_left_out() -> None:
    assert "k8s_ref" not in line(record("x", name="kopf.objects", k8s_ref={"uid": "1"}))


def test_line_breaks_stay_inside() -> None:
    assert line(record("a\nb"))["message"] == "a\nb"


def test_traceback_is_told() -> None:
    made = record("failed")
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        made.exc_info = sys.exc_info()
    assert "ZeroDivisionError: by zero" in line(made)["traceback"]
