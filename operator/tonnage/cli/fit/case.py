"""Parses and validates cases of `tonnage fit --batch`, one JSON object per line.

docs/fit.md describes the format. Lines are untrusted input: every field has bounds. Unknown fields
are ignored with a note.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from tonnage.api.parse import describe_refused
from tonnage.catalog.model import Vendor
from tonnage.cli.errors import InputError
from tonnage.cli.fit.vllm.flags import CACHE_DTYPES
from tonnage.fit.flag_values import MAX_COUNT

MAX_LINE_BYTES: Final = 8 * 1024**2
"""Longest line of a batch; a line holds one config.json, which has at most half of this."""

_MAX_GPUS: Final = 4096
_MAX_ARGUMENTS: Final = 512

Size = Annotated[int, Field(gt=0, le=MAX_COUNT)]
Degree = Annotated[int, Field(gt=0, le=_MAX_GPUS)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class CasePart(BaseModel):
    """A part of a case: camelCase names, strict types, unknown keys in `model_extra`."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="allow",
        frozen=True,
        strict=True,
        protected_namespaces=(),
        defer_build=True,  # a single question has no case
    )


class ModelCase(CasePart):
    """The model: the content of its config.json and, where known, the bytes of its files."""

    config: dict[str, Any]
    id: Text | None = None
    checkpoint_bytes: Size | None = None


class EngineCase(CasePart):
    """Layout and arguments of vLLM; null is the default of the version and device."""

    vllm_version: Text | None = None
    tensor_parallel_size: Degree | None = None
    pipeline_parallel_size: Degree | None = None
    data_parallel_size: Degree | None = None
    expert_parallel_size: Degree | None = None
    enable_expert_parallel: bool | None = None
    dtype: Text | None = None
    quantization: Text | None = None
    kv_cache_dtype: Text | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    max_model_len: Size | None = None
    max_num_seqs: Size | None = None
    max_num_batched_tokens: Size | None = None
    enforce_eager: bool | None = None
    speculative_tokens: Annotated[int, Field(ge=0, le=1024)] | None = None
    extra_args: Annotated[
        list[Annotated[str, Field(max_length=65_536)]], Field(max_length=_MAX_ARGUMENTS)
    ] = []

    @field_validator("extra_args", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Split a string as a shell would."""
        return shlex.split(value) if isinstance(value, str) else value or []

    @field_validator("kv_cache_dtype")
    @classmethod
    def _check_cache_dtype(cls, dtype: str | None) -> str | None:
        if dtype is not None and dtype not in CACHE_DTYPES:
            raise ValueError(f"expected one of {', '.join(CACHE_DTYPES)}")
        return dtype


class FitCase(CasePart):
    """One question: a model, a device, the arguments of the engine."""

    id: Text
    vendor: Vendor | None = Field(default=None, strict=False)
    model: ModelCase
    accelerator: Text | None = None
    device_memory_bytes: Size | None = None
    gpus_per_node: Degree | None = None
    engine: EngineCase = EngineCase()


def parse_case(line: str | bytes) -> FitCase:
    """Parse a line. Raises InputError naming the field, its value and the expected form."""
    if len(line) > MAX_LINE_BYTES:
        raise InputError(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        body = from_json(line)  # a config.json may hold Infinity
    except ValueError as error:
        raise InputError(f"is not JSON: {error}") from None
    try:
        return FitCase.model_validate(body)
    except ValidationError as error:
        raise InputError(_first_error(error)) from None


def case_id(line: str | bytes) -> str | None:
    """The id of a line that may be invalid; None without one."""
    try:
        body = from_json(line)
    except ValueError:
        return None
    identifier = body.get("id") if isinstance(body, dict) else None
    return identifier if isinstance(identifier, str) else None


def unknown_fields(case: FitCase) -> tuple[str, ...]:
    """Unknown fields, engine and model first; names that start with _ are comments."""
    return tuple(
        name
        for prefix, part in (("engine.", case.engine), ("model.", case.model), ("", case))
        for name in _unknown_names(prefix, part.model_extra or {})
    )


def _unknown_names(prefix: str, extra: Mapping[str, Any]) -> Iterator[str]:
    return (f"{prefix}{name}" for name in extra if not name.startswith("_"))


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the line"
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} is {describe_refused(first)}"
