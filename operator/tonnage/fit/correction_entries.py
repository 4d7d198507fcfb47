"""Corrections as they stand in the ConfigMap `tonnage-corrections` and in files: one entry a key.

People read, edit and carry them, so each entry is a few lines of YAML that says itself what it
speaks of; the name of its key is only a name. An entry that cannot be used harms no other.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import yaml

from tonnage.api.correction import CorrectionEntry
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.text import truncate
from tonnage.fit.corrections import (
    CorrectionKey,
    LearntCorrections,
    MemoryCorrection,
    Origin,
    ServedModel,
)

MAX_ENTRIES: Final = 256
"""Entries that are used; with 400 bytes each they stay far below the 1 MiB of a ConfigMap."""

MAX_ENTRY_CHARS: Final = 2048
"""Longest text of an entry: beyond it nothing is parsed."""

_MAX_NAME_CHARS: Final = 253
_NOT_IN_A_NAME: Final = re.compile(r"[^-._a-zA-Z0-9]+")
_PROBLEM_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """What a map says: the corrections by the names of their entries, and by the same names why
    others cannot be used."""

    by_name: Mapping[str, MemoryCorrection]
    problems: Mapping[str, str]

    @property
    def corrections(self) -> LearntCorrections:
        """All that can be used."""
        return LearntCorrections(tuple(self.by_name.values()))

    def name_of(self, lesson: MemoryCorrection) -> str:
        """The name of the entry that speaks of the same, or that is to: never that of another one,
        whose writer may have made it speak of something else."""
        same = subject_of(lesson)
        for name, found in self.by_name.items():
            if subject_of(found) == same:
                return name
        first = entry_name(lesson)
        further = (f"{first[: _MAX_NAME_CHARS - 4]}.{number}" for number in count(2))
        return (
            first
            if first not in self.by_name
            else next(name for name in further if name not in self.by_name)
        )


Subject = tuple[CorrectionKey, str | None]
"""What an entry speaks of, and in which namespace; None is everywhere."""

NO_ENTRIES: Final = ReadEntries({}, {})


def read_entries(data: Mapping[str, object], accelerators: Collection[str]) -> ReadEntries:
    """The entries of a map, in the order of their names; `accelerators` are those that exist."""
    found: dict[str, MemoryCorrection] = {}
    problems: dict[str, str] = {}
    named: dict[Subject, str] = {}
    for name in sorted(data):
        try:
            correction = _read_entry(data[name], accelerators)
        except InvalidSpecError as error:
            problems[name] = truncate(str(error), _PROBLEM_BYTES)
            continue
        subject = subject_of(correction)
        if subject in named:
            problems[name] = f"speaks of the same as {named[subject]}: keep one of them"
        elif len(found) == MAX_ENTRIES:
            problems[name] = f"is beyond the first {MAX_ENTRIES} entries, which are all that count"
        else:
            found[name], named[subject] = correction, name
    return ReadEntries(found, problems)


def write_entry(correction: MemoryCorrection) -> str:
    """The text of an entry."""
    key = correction.key
    entry = CorrectionEntry(
        model=key.served.model,
        weights=key.served.weights,
        kv_cache=key.served.kv_cache,
        vllm_version=key.served.vllm_version,
        accelerator=key.accelerator,
        tensor_parallel_size=key.tensor,
        pipeline_parallel_size=key.pipeline,
        extra_bytes=correction.extra_bytes,
        origin=correction.origin.value,
        learnt_of=correction.of,
        learnt_on=correction.on,
    )
    return yaml.safe_dump(entry.to_dict(), sort_keys=False)


def subject_of(correction: MemoryCorrection) -> Subject:
    """What it speaks of: one entry does."""
    return correction.key, correction.namespace


def entry_name(correction: MemoryCorrection) -> str:
    """A name for people that tells subjects apart, of characters that a ConfigMap takes."""
    key, namespace = subject_of(correction)
    served = key.served
    split = f"tp{key.tensor}" + (f"pp{key.pipeline}" if key.pipeline > 1 else "")
    told = (served.model, served.weights, f"kv-{served.kv_cache}", f"v{served.vllm_version}")
    where = (namespace,) if namespace is not None else ()
    name = ".".join((*where, key.accelerator, split, *told))
    return _NOT_IN_A_NAME.sub("-", name)[:_MAX_NAME_CHARS]


def _read_entry(raw: object, accelerators: Collection[str]) -> MemoryCorrection:
    """One entry, as text or as the mapping that it is. Raises InvalidSpecError."""
    fields = _parse(raw) if isinstance(raw, str) else raw
    if not isinstance(fields, dict) or any(isinstance(one, dict | list) for one in fields.values()):
        # Nothing is looked into: aliases make a value of few characters endless.
        raise InvalidSpecError("entry: expected a line `field: value` for each field")
    entry = parse_model(CorrectionEntry, fields, "entry")
    if entry.accelerator not in accelerators:
        raise InvalidSpecError(
            f"entry.accelerator: {entry.accelerator} is no accelerator of the catalogue"
        )
    version = entry.vllm_version.removeprefix("v")
    served = ServedModel(entry.model, entry.weights, entry.kv_cache, version)
    return MemoryCorrection(
        CorrectionKey(
            served, entry.accelerator, entry.tensor_parallel_size, entry.pipeline_parallel_size
        ),
        entry.extra_bytes,
        Origin(entry.origin),
        entry.learnt_of,
        entry.learnt_on,
    )


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
