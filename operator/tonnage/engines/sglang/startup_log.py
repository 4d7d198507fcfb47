"""The words of SGLang and of torch about failed starts."""

import re
from functools import lru_cache
from typing import Final

from tonnage.engines.startup_log import StartupLog, read_failure_rules, read_phases

_PREFIX: Final = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?[^\]]{0,40}\] ")
"""Source: srt/utils/common.py configure_logger."""

_ERROR: Final = re.compile(
    r"^(([A-Za-z_][\w.]*)?(Error|Exception)(:|$)|sglang serve: error:|Scheduler hit an exception:)"
)
"""The parser of `python3 -m sglang.launch_server` calls itself `sglang serve`, and graphs that are
not captured are a plain Exception (srt/server_args.py, model_executor/runner)."""

_POINTER: Final = re.compile(r"Scheduler hit an exception|Rank \d+ scheduler (is dead|died)")


@lru_cache(maxsize=1)
def startup_log() -> StartupLog:
    """How to read SGLang's log."""
    rules = read_failure_rules("sglang_failures.yaml")
    return StartupLog(_PREFIX, _ERROR, _POINTER, rules, read_phases("sglang_phases.yaml"))
