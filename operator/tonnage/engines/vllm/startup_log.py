"""The words of vLLM and of torch about failed starts."""

import re
from functools import lru_cache
from typing import Final

from tonnage.engines.startup_log import StartupLog, read_failure_rules, read_phases

_PREFIX: Final = re.compile(
    r"^(\(\w+ pid=\d+\) )?((ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d )?(\[[\w.]+:\d+\] )?"
)
_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*(Error|Exception):|vllm: error:|\s+Value error,) ")
_POINTER: Final = re.compile(r"root cause|validation errors? for ")


@lru_cache(maxsize=1)
def startup_log() -> StartupLog:
    """How to read vLLM's log."""
    rules, phases = read_failure_rules("failures.yaml"), read_phases("startup_phases.yaml")
    return StartupLog(_PREFIX, _ERROR, _POINTER, rules, phases)
