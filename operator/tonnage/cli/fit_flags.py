"""From the flags of `tonnage fit` to the question that they put."""

import argparse
import difflib
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tonnage.api.workload import Workload
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.config import MAX_CONFIG_BYTES, parse_config_text
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.checkpoint.safetensors import MAX_INDEX_BYTES, parse_index
from tonnage.cli.corrections import read_corrections
from tonnage.cli.errors import InputError
from tonnage.cli.fit_asking import (
    layout_notes,
    options_of,
    read_extra_arguments,
    split_of,
    unlisted_accelerator,
)
from tonnage.cli.fit_extra import ExtraArguments
from tonnage.cli.fit_model import doubts, make_checkpoint, stored_as
from tonnage.cli.fit_version import find_release
from tonnage.fit.advice import Setting
from tonnage.fit.context import default_context
from tonnage.fit.question import FitQuestion

Parsed = TypeVar("Parsed")

STDIN: Final = "-"
_GPUS_PER_NODE: Final = 8
"""Of a device of which the catalogue does not know it: every platform of today with more than four
data-centre GPUs in a server has eight."""

_SETTING_OF: Final = {
    "enable_expert_parallel": Setting.EXPERTS,
    "max_num_seqs": Setting.SEQUENCES,
    "max_num_batched_tokens": Setting.BATCH,
    "kv_cache_dtype": Setting.CACHE_DTYPE,
    "enforce_eager": Setting.GRAPHS,
    "tensor_parallel_size": Setting.SPLIT,
    "quantization": Setting.QUANTIZATION,
    "max_model_len": Setting.CONTEXT,
}
"""What counts as chosen when it is given; a utilization does not: it is lowered only where it is
the very thing that is too high."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The question that the flags put, and what stands beside it.

    `given` are the settings that the user chose; without the degree among them every legal one
    within `max_gpus` is to be judged. `request_tokens` is a typical request, None without workload.
    """

    question: FitQuestion
    given: Collection[Setting]
    allow: Collection[str]
    max_gpus: int
    request_tokens: int | None
    notes: tuple[str, ...]


def read_flags(options: argparse.Namespace, catalog: Catalog) -> Flags:
    """What the flags ask. Raises InputError naming the flag or file and what was expected."""
    extra = _read_extra_arguments(options.extra_args)
    given = {**extra.settings, **vars(options)}
    checkpoint = _read_checkpoint(options, given.get("quantization"))
    accelerator = _find_accelerator(options, catalog)
    version, notes = _find_version(options.vllm_version, catalog)
    notes.extend([*doubts(checkpoint), *extra.notes, *layout_notes(given)])
    length = default_context(checkpoint.shape, catalog.release(version))
    if "max_model_len" not in given:
        notes.append(f"without --max-model-len the model's own length counts: {length:,} tokens")
    workload_tokens, request_tokens = _workload(options)
    return Flags(
        FitQuestion(
            checkpoint,
            accelerator,
            _device_bytes(options, accelerator),
            split_of(given),
            options_of(given, version, length, extra.stated),
            workload_tokens,
            read_corrections(options.corrections, catalog).most_careful(),
        ),
        frozenset(setting for name, setting in _SETTING_OF.items() if name in given),
        _check_rules(options.allow, catalog),
        options.gpus_per_node or accelerator.gpus_per_node or _GPUS_PER_NODE,
        request_tokens,
        tuple(notes),
    )


def _read_extra_arguments(text: str) -> ExtraArguments:
    """Further arguments, split as a shell would."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--extra-args: {error}") from None
    return read_extra_arguments("--extra-args", arguments)


def _read_checkpoint(options: argparse.Namespace, method: str | None) -> Checkpoint:
    shape = stored_as(_parse(parse_config_text, options.config, MAX_CONFIG_BYTES), method)
    if options.safetensors_index is None:
        return make_checkpoint(shape, options.weights_bytes)
    index = _parse(parse_index, options.safetensors_index, MAX_INDEX_BYTES)
    return make_checkpoint(shape, index=index)


def _parse(parse: Callable[[bytes], Parsed], path: str, limit_bytes: int) -> Parsed:
    name = "standard input" if path == STDIN else path
    content = _read(path, name, limit_bytes)
    try:
        return parse(content)
    except CheckpointError as error:
        raise InputError(f"{name}: {error}") from None


def _read(path: str, name: str, limit_bytes: int) -> bytes:
    """The file as a whole; one that is too large is cut just beyond the limit, and refused."""
    if not path:
        raise InputError("'' is not the name of a file")
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(limit_bytes + 1)
        with Path(path).open("rb") as file:
            return file.read(limit_bytes + 1)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{name!r} is not the name of a file") from None


def _find_accelerator(options: argparse.Namespace, catalog: Catalog) -> Accelerator:
    if options.accelerator is not None:
        try:
            return catalog.accelerator(options.accelerator)
        except UnknownAcceleratorError as error:
            raise InputError(f"--accelerator: {error}") from None
    if options.vendor is None:
        raise InputError(
            "give --accelerator, or for a card that is not in the catalogue --vendor and "
            "--device-memory"
        )
    return unlisted_accelerator(options.vendor, options.gpus_per_node)


def _device_bytes(options: argparse.Namespace, accelerator: Accelerator) -> int:
    found: int | None = options.device_memory or accelerator.memory_bytes
    if found is None:
        raise InputError(f"--device-memory is missing: that of {accelerator.name} is not known")
    return found


def _check_rules(names: Sequence[str], catalog: Catalog) -> frozenset[str]:
    """The rules to be overridden; a name that is none would override nothing without a word."""
    known = sorted(rule.name for rule in catalog.rules)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, n=3, cutoff=0.4) or known
            raise InputError(f"--allow {name[:64]!r} is no rule; did you mean: {', '.join(near)}?")
    return frozenset(names)


def _find_version(text: str | None, catalog: Catalog) -> tuple[str, list[str]]:
    if text is None:
        return catalog.default_release, []
    found = find_release(text)
    if found is None:
        raise InputError(
            f"--vllm-version {text[:80]!r}: expected a release such as 0.32.0, or a day"
        )
    return found.version, [found.note] if found.note else []


def _workload(options: argparse.Namespace) -> tuple[int, int | None]:
    """Tokens that are held at a time, and those of a typical request; 0 and None without one."""
    sizes = (options.concurrency, options.input_tokens, options.output_tokens)
    if not any(sizes):
        return 0, None
    typical = Workload(max_model_len=1)
    request = (options.input_tokens or typical.input_tokens) + (
        options.output_tokens or typical.output_tokens
    )
    return (options.concurrency or 0) * request, request
