"""The JSON format: one object per line for any record."""

import json
import logging
import sys
from typing import Any

from tonnage.controller.log_lines import JsonFormatter


def line(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def record(message: str, *arguments: object, name: str = "tonnage.x", **extra: Any) -> Any:
    log_record = logging.LogRecord(name, logging.INFO, "f.py", 1, message, arguments, None)
    log_record.created = 1767225600.5
    for key, value in extra.items():
        setattr(log_record, key, value)
    return log_record


def test_line_has_time_level_logger_and_message() -> None:
    assert line(record("hello %s", "world")) == {
        "time": "2026-01-01T00:00:00.500Z",
        "level": "info",
        "logger": "tonnage.x",
        "message": "hello world",
    }


def test_extra_fields_are_fields() -> None:
    assert line(record("x", key="chat/llama", writes=["a"]))["writes"] == ["a"]


def test_a_value_that_json_cannot_represent_becomes_a_string() -> None:
    assert line(record("x", odd={1}))["odd"] == "{1}"


def test_objects_that_libraries_attach_to_records_are_omitted() -> None:
    assert "k8s_ref" not in line(record("x", name="kopf.objects", k8s_ref={"uid": "1"}))


def test_line_breaks_are_escaped() -> None:
    assert line(record("a\nb"))["message"] == "a\nb"


def test_traceback_is_a_field() -> None:
    log_record = record("failed")
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        log_record.exc_info = sys.exc_info()
    assert "ZeroDivisionError: by zero" in line(log_record)["traceback"]
