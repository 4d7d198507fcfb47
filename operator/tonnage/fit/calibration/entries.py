"""Corrections in the ConfigMap `tonnage-corrections` and in files: one entry for each key.

People read, edit and copy entries, so each is a few lines of YAML that name their own subject; the
ConfigMap key is only a name. An invalid entry does not affect the others.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import count
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, StringConstraints

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.schema import ApiModel
from tonnage.api.text import truncate
from tonnage.fit.calibration.corrections import (
    DEFAULT_ENGINE,
    ENGINES,
    CorrectionKey,
    KnownCorrections,
    MemoryCorrection,
    Origin,
    ServedModel,
)

MAX_ENTRIES: Final = 256
"""Most entries in use; with 400 bytes each they stay far below the 1 MiB of a ConfigMap."""

MAX_ENTRY_CHARS: Final = 2048
"""Longest text of an entry: longer ones are not parsed."""

_MAX_NAME_CHARS: Final = 253
_NOT_IN_A_NAME: Final = re.compile(r"[^-._a-zA-Z0-9]+")
_PROBLEM_BYTES: Final = 400

_MAX_BYTES: Final = 2**40
"""More memory than any device has."""

_Identifier = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$", max_length=120)
]
_ParallelSize = Annotated[int, Field(ge=1, le=1024)]


class CorrectionEntry(ApiModel):
    """Measured memory of one GPU beyond the calculation, and the starts that it applies to."""

    model: _Identifier
    """Model: architecture, layers, hidden size and parameters, for example
    LlamaForCausalLM-80x8192-70.6B."""
    weights: _Identifier
    """Quantization of the weights, or their data type without quantization."""
    kv_cache: _Identifier
    """Data type of the KV cache, as in spec.kvCacheDtype."""
    vllm_version: _Identifier | None = None
    """vLLM release, for example 0.32.0. Required without `engine`."""
    engine: _Identifier | None = None
    """Engine, as in spec.engine. Default: vllm."""
    engine_version: _Identifier | None = None
    """Release of the engine, for example 0.5.23. Required with `engine`, invalid without it."""
    accelerator: _Identifier
    """Accelerator ID."""
    tensor_parallel_size: _ParallelSize = 1
    """Tensor parallel size. Default: 1."""
    pipeline_parallel_size: _ParallelSize = 1
    """Pipeline parallel size. Default: 1."""
    data_parallel_size: _ParallelSize | None = None
    """Data parallel size. Default: 1."""
    extra_bytes: Annotated[int, Field(ge=-_MAX_BYTES, le=_MAX_BYTES)]
    """Bytes on one GPU beyond the calculation, negative for less."""
    origin: Literal["Measurement", "Failure", "Person"] = "Person"
    """Measurement: the KV cache that the engine reported. Failure: a start that ran out of memory.
    Person: set by a user; the operator never changes it. Default: Person."""
    learnt_of: Annotated[str, StringConstraints(max_length=320)] | None = None
    """Source of the correction, as namespace/name of the InferenceDeployment. The correction
    applies in that namespace; without this field, or with origin Person, in all namespaces.
    Default: none."""
    learnt_on: date | None = None
    """Date of the correction, for example 2026-11-22. Default: none."""


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The entries of a map by name: corrections of the valid ones, problems of the invalid ones."""

    by_name: Mapping[str, MemoryCorrection]
    problems: Mapping[str, str]

    @property
    def corrections(self) -> KnownCorrections:
        """The corrections of all valid entries."""
        return KnownCorrections(tuple(self.by_name.values()))

    def name_of(self, correction: MemoryCorrection) -> str:
        """The name of the entry with the same subject, else a free name.

        A name that is in use may belong to an entry whose subject a person changed.
        """
        subject = subject_of(correction)
        for name, other in self.by_name.items():
            if subject_of(other) == subject:
                return name
        default_name = entry_name(correction)
        numbered = (f"{default_name[: _MAX_NAME_CHARS - 4]}.{number}" for number in count(2))
        return (
            default_name
            if default_name not in self.by_name
            else next(name for name in numbered if name not in self.by_name)
        )


CorrectionSubject = tuple[CorrectionKey, str | None]
"""The key that an entry corrects, and its namespace; None applies to all namespaces."""

NO_ENTRIES: Final = ReadEntries({}, {})


def read_entries(data: Mapping[str, object], accelerators: Collection[str]) -> ReadEntries:
    """Reads the entries of a map in the order of their names; `accelerators` are the known ids."""
    by_name: dict[str, MemoryCorrection] = {}
    problems: dict[str, str] = {}
    names: dict[CorrectionSubject, str] = {}
    for name in sorted(data):
        try:
            correction = _read_entry(data[name], accelerators)
        except InvalidSpecError as error:
            problems[name] = truncate(str(error), _PROBLEM_BYTES)
            continue
        subject = subject_of(correction)
        if subject in names:
            problems[name] = f"has the same subject as {names[subject]}: keep one of them"
        elif len(by_name) == MAX_ENTRIES:
            problems[name] = f"is beyond the limit of {MAX_ENTRIES} entries"
        else:
            by_name[name], names[subject] = correction, name
    return ReadEntries(by_name, problems)


def write_entry(correction: MemoryCorrection) -> str:
    """The text of an entry."""
    key = correction.key
    is_default = key.served.engine == DEFAULT_ENGINE
    entry = CorrectionEntry(
        model=key.served.model,
        weights=key.served.weights,
        kv_cache=key.served.kv_cache,
        vllm_version=key.served.version if is_default else None,
        engine=None if is_default else key.served.engine,
        engine_version=None if is_default else key.served.version,
        accelerator=key.accelerator,
        tensor_parallel_size=key.tensor,
        pipeline_parallel_size=key.pipeline,
        data_parallel_size=key.data if key.data > 1 else None,
        extra_bytes=correction.extra_bytes,
        origin=correction.origin.value,
        learnt_of=correction.of,
        learnt_on=correction.on,
    )
    return yaml.safe_dump(entry.to_dict(), sort_keys=False)


def subject_of(correction: MemoryCorrection) -> CorrectionSubject:
    """The key and namespace of a correction; at most one entry has them."""
    return correction.key, correction.namespace


def entry_name(correction: MemoryCorrection) -> str:
    """A readable name that differs by subject, in characters that a ConfigMap key allows."""
    key, namespace = subject_of(correction)
    served = key.served
    sizes = {"tp": key.tensor, "pp": key.pipeline, "dp": key.data}
    parallelism = "".join(
        f"{name}{size}" for name, size in sizes.items() if name == "tp" or size > 1
    )
    engine = () if served.engine == DEFAULT_ENGINE else (served.engine,)
    release = (*engine, f"v{served.version}")
    model = (served.model, served.weights, f"kv-{served.kv_cache}", *release)
    prefix = (namespace,) if namespace is not None else ()
    name = ".".join((*prefix, key.accelerator, parallelism, *model))
    return _NOT_IN_A_NAME.sub("-", name)[:_MAX_NAME_CHARS]


def _read_entry(raw: object, accelerators: Collection[str]) -> MemoryCorrection:
    """Reads one entry from YAML text or from a mapping. Raises InvalidSpecError."""
    fields = _parse(raw) if isinstance(raw, str) else raw
    if not isinstance(fields, dict) or any(
        isinstance(value, dict | list) for value in fields.values()
    ):
        # Nested values are refused unread: YAML aliases make a short text expand without end.
        raise InvalidSpecError("entry: expected a line `field: value` for each field")
    entry = parse_model(CorrectionEntry, fields, "entry")
    if entry.accelerator not in accelerators:
        raise InvalidSpecError(
            f"entry.accelerator: {entry.accelerator} is no accelerator of the catalogue"
        )
    engine, version = _read_release(entry)
    served = ServedModel(entry.model, entry.weights, entry.kv_cache, version, engine)
    return MemoryCorrection(
        CorrectionKey(
            served,
            entry.accelerator,
            entry.tensor_parallel_size,
            entry.pipeline_parallel_size,
            entry.data_parallel_size or 1,
        ),
        entry.extra_bytes,
        Origin(entry.origin),
        entry.learnt_of,
        entry.learnt_on,
    )


def _read_release(entry: CorrectionEntry) -> tuple[str, str]:
    """The engine and its release. Raises InvalidSpecError unless there is one of each."""
    if entry.engine not in (None, *ENGINES):
        known = ", ".join(ENGINES)
        raise InvalidSpecError(f"entry.engine: {entry.engine} is no engine; expected {known}")
    if entry.engine is None:
        engine, version, field = DEFAULT_ENGINE, entry.vllm_version, "vllmVersion"
        other, other_field = entry.engine_version, "engineVersion"
    else:
        engine, version, field = entry.engine, entry.engine_version, "engineVersion"
        other, other_field = entry.vllm_version, "vllmVersion"
    if version is None:
        raise InvalidSpecError(f"entry.{field}: expected the release of {engine}")
    if other is not None:
        raise InvalidSpecError(f"entry.{other_field}: {other} is refused; use {field} for {engine}")
    return engine, version.removeprefix("v")


def _parse(text: str) -> Any:
    if len(text) > MAX_ENTRY_CHARS:
        raise InvalidSpecError(f"entry: has {len(text):,} characters, at most {MAX_ENTRY_CHARS:,}")
    try:
        return yaml.load(text, yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise InvalidSpecError(f"entry: is not YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InvalidSpecError("entry: is not YAML") from None
