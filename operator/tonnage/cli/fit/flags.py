"""Turns the flags of `tonnage fit` into a question for each accelerator."""

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tonnage.api.typical_request import TYPICAL_INPUT_TOKENS, TYPICAL_OUTPUT_TOKENS
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, CheckpointError, ModelShape
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.cli.errors import InputError
from tonnage.cli.fit.model import apply_file_quantization, list_assumptions, make_checkpoint
from tonnage.cli.fit.settings import (
    list_layout_notes,
    make_unlisted_accelerator,
    read_engine_options,
    read_extra_arguments,
    read_parallelism,
)
from tonnage.cli.fit.vllm.extra_arguments import ExtraArguments
from tonnage.cli.fit.vllm.release import resolve_release
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
class Workload:
    """A typical request, and how many come at a time: None where the user did not say."""

    input_tokens: int
    output_tokens: int
    concurrency: int | None
    stated: bool
    """Whether the user described the workload at all."""

    @property
    def request_tokens(self) -> int:
        """Tokens of a typical request."""
        return self.input_tokens + self.output_tokens

    @property
    def tokens(self) -> int:
        """Tokens of all concurrent requests."""
        return (self.concurrency or 0) * self.request_tokens


@dataclass(frozen=True, slots=True)
class Flags:
    """The question of the flags, and the options for its answer.

    `chosen` are the settings that the user chose; without a tensor-parallel size every legal one
    within `max_gpus`, those of `nodes` nodes, is judged.
    """

    question: FitQuestion
    chosen: Collection[Setting]
    allow: Collection[str]
    max_gpus: int
    nodes: int
    workload: Workload
    notes: tuple[str, ...]


def read_flags(options: argparse.Namespace, catalog: Catalog) -> tuple[Flags, ...]:
    """Read the flags: a question for each accelerator that they name.

    Raises InputError naming the flag or file and the expected form.
    """
    extra = _read_extra_arguments(options.extra_args)
    settings = {**extra.settings, **vars(options)}
    devices, notes = _select_devices(options, catalog)
    checkpoint = _read_checkpoint(options, settings)
    version, version_notes = _resolve_version(options.vllm_version, catalog)
    notes += [*version_notes, *list_assumptions(checkpoint), *extra.notes]
    notes += list_layout_notes(settings)
    if options.nodes > 1:
        notes.append(
            f"{options.nodes} nodes: no speed is estimated, for their network is not known"
        )
    if vars(options).get("context_overrides") == "":
        notes.append("--hf-overrides was ignored: another config.json cannot be calculated")
    length = default_context(checkpoint.shape, catalog.release(version))
    if "max_model_len" not in settings:
        notes.append(f"without --max-model-len the model's own length counts: {length:,} tokens")
    workload = _read_workload(options)
    engine_options = read_engine_options(settings, version, length, extra.stated)
    corrections = read_corrections(options.corrections, catalog).most_careful()
    return tuple(
        Flags(
            FitQuestion(
                checkpoint,
                device.accelerator,
                device.size_bytes,
                read_parallelism(settings, options.nodes),
                engine_options,
                workload.tokens,
                corrections,
            ),
            frozenset(setting for name, setting in _SETTINGS.items() if name in settings),
            _check_rules(options.allow, catalog),
            options.nodes * _gpus_per_node(options, device.accelerator),
            options.nodes,
            workload,
            tuple(notes),
        )
        for device in devices
    )


def _gpus_per_node(options: argparse.Namespace, accelerator: Accelerator) -> int:
    return options.gpus_per_node or accelerator.gpus_per_node or _DEFAULT_GPUS_PER_NODE


def _read_extra_arguments(text: str) -> ExtraArguments:
    """Split the extra arguments as a shell would, and parse them."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--extra-args: {error}") from None
    return read_extra_arguments("--extra-args", arguments)


def _read_checkpoint(options: argparse.Namespace, settings: Mapping[str, Any]) -> Checkpoint:
    if options.model is not None:
        checkpoint = _fetch_checkpoint(options)
        return replace(checkpoint, shape=_apply_settings(checkpoint.shape, settings))
    shape = _parse(parse_config_text, options.config, MAX_CONFIG_BYTES)
    shape = _apply_settings(shape, settings)
    if options.safetensors_index is None:
        return make_checkpoint(shape, options.weights_bytes)
    index = _parse(parse_index, options.safetensors_index, MAX_INDEX_BYTES)
    return make_checkpoint(shape, index=index)


def _apply_settings(shape: ModelShape, settings: Mapping[str, Any]) -> ModelShape:
    """The shape with the given quantization and overrides of config.json."""
    shape = apply_file_quantization(shape, settings.get("quantization"))
    try:
        return override_context(shape, settings.get("context_overrides", ""))
    except CheckpointError as error:
        raise InputError(f"--hf-overrides or --rope-scaling: {error}") from None


def _fetch_checkpoint(options: argparse.Namespace) -> Checkpoint:
    """The model of a repository on the Hub, whose files state their sizes."""
    for flag, value in (
        ("--weights-bytes", options.weights_bytes),
        ("--safetensors-index", options.safetensors_index),
    ):
        if value is not None:
            raise InputError(f"{flag} describes the files of --config; leave it out with MODEL")
    if Path(options.model).exists():
        raise InputError(
            f"MODEL {options.model!r} is a file or folder, expected a repository as "
            "meta-llama/Llama-3.1-8B; give a config.json by --config"
        )
    # The client of the Hub takes longer to import than the answer from a file takes.
    from tonnage.cli.sources.repository import read_repository  # noqa: PLC0415 - see above

    return read_repository(options.model, options.revision, "MODEL")


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


@dataclass(frozen=True, slots=True)
class _Device:
    accelerator: Accelerator
    size_bytes: int


def _select_devices(
    options: argparse.Namespace, catalog: Catalog
) -> tuple[Sequence[_Device], list[str]]:
    """The devices that the flags name, and a note on those that cannot be calculated."""
    accelerators = _select_accelerators(options, catalog)
    if options.device_memory is not None and len(accelerators) > 1:
        ids = ", ".join(accelerator.id for accelerator in accelerators)
        raise InputError(f"--device-memory is of one card: expected one of {ids} as --accelerator")
    known = [
        _Device(accelerator, size_bytes)
        for accelerator in accelerators
        if (size_bytes := options.device_memory or accelerator.memory_bytes)
    ]
    left_out = [one.id for one in accelerators if one not in {each.accelerator for each in known}]
    if not known:
        names = ", ".join(left_out)
        raise InputError(f"--device-memory is missing: that of {names} is not known")
    notes = [f"{', '.join(left_out)}: left out, their memory is not known"] if left_out else []
    return known, notes


def _select_accelerators(options: argparse.Namespace, catalog: Catalog) -> Sequence[Accelerator]:
    if options.accelerator:
        names = [name.strip() for text in options.accelerator for name in text.split(",")]
        try:
            named = (one for name in names for one in catalog.accelerators_named(name))
            return tuple(dict.fromkeys(named))
        except UnknownAcceleratorError as error:
            raise InputError(f"--accelerator: {error}") from None
    if options.vendor is None:
        raise InputError(
            "give --accelerator, or for a card that is not in the catalogue --vendor and "
            "--device-memory"
        )
    return (make_unlisted_accelerator(options.vendor, options.gpus_per_node),)


def _check_rules(names: Sequence[str], catalog: Catalog) -> frozenset[str]:
    """Check the names of the rules to override: an unknown one would override nothing silently."""
    for name in names:
        try:
            catalog.rule(name)
        except UnknownRuleError as error:
            raise InputError(f"--allow {error}") from None
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


def _read_workload(options: argparse.Namespace) -> Workload:
    return Workload(
        options.input_tokens or TYPICAL_INPUT_TOKENS,
        options.output_tokens or TYPICAL_OUTPUT_TOKENS,
        options.concurrency,
        any((options.concurrency, options.input_tokens, options.output_tokens)),
    )
