"""Turns the flags of `tonnage fit` into a question."""

import argparse
import difflib
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tonnage.api.workload import Workload
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.cli.errors import InputError
from tonnage.cli.fit.extra_arguments import ExtraArguments
from tonnage.cli.fit.model import apply_file_quantization, list_assumptions, make_checkpoint
from tonnage.cli.fit.question import (
    list_layout_notes,
    make_unlisted_accelerator,
    read_engine_options,
    read_extra_arguments,
    read_parallelism,
)
from tonnage.cli.fit.release import resolve_release
from tonnage.cli.sources.corrections import read_corrections
from tonnage.fit.context import default_context, override_context
from tonnage.fit.questions.advice import Setting
from tonnage.fit.questions.question import FitQuestion

Parsed = TypeVar("Parsed")

STDIN: Final = "-"
_DEFAULT_GPUS_PER_NODE: Final = 8
"""For a device without this figure in the catalogue: every current platform with more than four
data-centre GPUs in a server has eight."""

_SETTINGS: Final = {
    "enable_expert_parallel": Setting.EXPERTS,
    "max_num_seqs": Setting.SEQUENCES,
    "max_num_batched_tokens": Setting.BATCH,
    "kv_cache_dtype": Setting.CACHE_DTYPE,
    "enforce_eager": Setting.GRAPHS,
    "tensor_parallel_size": Setting.SPLIT,
    "quantization": Setting.QUANTIZATION,
    "max_model_len": Setting.CONTEXT,
}
"""Arguments that fix a setting for the advice. A given utilization does not: the advice lowers it
only if the utilization itself is too high."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The question of the flags, and the options for its answer.

    `chosen` are the settings that the user chose; without a tensor-parallel size every legal one
    within `max_gpus` is judged. `request_tokens` is a typical request, None without a workload.
    """

    question: FitQuestion
    chosen: Collection[Setting]
    allow: Collection[str]
    max_gpus: int
    request_tokens: int | None
    notes: tuple[str, ...]


def read_flags(options: argparse.Namespace, catalog: Catalog) -> Flags:
    """Read the flags. Raises InputError naming the flag or file and the expected form."""
    extra = _read_extra_arguments(options.extra_args)
    settings = {**extra.settings, **vars(options)}
    checkpoint = _read_checkpoint(options, settings)
    accelerator = _select_accelerator(options, catalog)
    version, notes = _resolve_version(options.vllm_version, catalog)
    notes.extend([*list_assumptions(checkpoint), *extra.notes, *list_layout_notes(settings)])
    length = default_context(checkpoint.shape, catalog.release(version))
    if "max_model_len" not in settings:
        notes.append(f"without --max-model-len the model's own length counts: {length:,} tokens")
    workload_tokens, request_tokens = _read_workload(options)
    return Flags(
        FitQuestion(
            checkpoint,
            accelerator,
            _device_bytes(options, accelerator),
            read_parallelism(settings),
            read_engine_options(settings, version, length, extra.stated),
            workload_tokens,
            read_corrections(options.corrections, catalog).most_careful(),
        ),
        frozenset(setting for name, setting in _SETTINGS.items() if name in settings),
        _check_rules(options.allow, catalog),
        options.gpus_per_node or accelerator.gpus_per_node or _DEFAULT_GPUS_PER_NODE,
        request_tokens,
        tuple(notes),
    )


def _read_extra_arguments(text: str) -> ExtraArguments:
    """Split the extra arguments as a shell would, and parse them."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--extra-args: {error}") from None
    return read_extra_arguments("--extra-args", arguments)


def _read_checkpoint(options: argparse.Namespace, settings: Mapping[str, Any]) -> Checkpoint:
    shape = _parse(parse_config_text, options.config, MAX_CONFIG_BYTES)
    shape = apply_file_quantization(shape, settings.get("quantization"))
    try:
        shape = override_context(shape, settings.get("context_overrides", ""))
    except CheckpointError as error:
        raise InputError(f"the overrides of config.json: {error}") from None
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
    """Read the file up to one byte beyond the limit, which the parser then refuses."""
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


def _select_accelerator(options: argparse.Namespace, catalog: Catalog) -> Accelerator:
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
    return make_unlisted_accelerator(options.vendor, options.gpus_per_node)


def _device_bytes(options: argparse.Namespace, accelerator: Accelerator) -> int:
    device_bytes: int | None = options.device_memory or accelerator.memory_bytes
    if device_bytes is None:
        raise InputError(f"--device-memory is missing: that of {accelerator.name} is not known")
    return device_bytes


def _check_rules(names: Sequence[str], catalog: Catalog) -> frozenset[str]:
    """Check the names of the rules to override: an unknown one would override nothing silently."""
    known = sorted(rule.name for rule in catalog.rules)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, n=3, cutoff=0.4) or known
            raise InputError(f"--allow {name[:64]!r} is no rule; did you mean: {', '.join(near)}?")
    return frozenset(names)


def _resolve_version(text: str | None, catalog: Catalog) -> tuple[str, list[str]]:
    if text is None:
        return catalog.default_release, []
    release = resolve_release(text)
    if release is None:
        raise InputError(
            f"--vllm-version {text[:80]!r}: expected a release such as 0.32.0, or a day"
        )
    return release.version, [release.note] if release.note else []


def _read_workload(options: argparse.Namespace) -> tuple[int, int | None]:
    """Tokens of all concurrent requests, and of a typical one; 0 and None without a workload."""
    sizes = (options.concurrency, options.input_tokens, options.output_tokens)
    if not any(sizes):
        return 0, None
    typical = Workload(max_model_len=1)
    request = (options.input_tokens or typical.input_tokens) + (
        options.output_tokens or typical.output_tokens
    )
    return (options.concurrency or 0) * request, request
