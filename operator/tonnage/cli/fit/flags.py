"""Turns the flags of `tonnage fit` into a question for each accelerator."""

import argparse
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.workload import TYPICAL_INPUT_TOKENS, TYPICAL_OUTPUT_TOKENS
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError, UnknownRuleError
from tonnage.catalog.model import Accelerator
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.checkpoint.model import ModelShape
from tonnage.cli.errors import InputError
from tonnage.cli.fit.engine import WORDS, Engine
from tonnage.cli.fit.files import Files
from tonnage.cli.fit.model import list_assumptions
from tonnage.cli.fit.settings import (
    list_layout_notes,
    make_unlisted_accelerator,
    read_engine_options,
    read_extra_arguments,
    read_parallelism,
)
from tonnage.cli.fit.sglang.flags import (
    options_for_sglang,
    options_for_vllm,
    refuse_in_extra_arguments,
    refuse_sglang_flags,
    sglang_settings,
)
from tonnage.cli.fit.vllm.extra_arguments import ExtraArguments
from tonnage.cli.fit.vllm.release import resolve_release
from tonnage.fit.context import default_context
from tonnage.fit.questions.advice import Setting
from tonnage.fit.questions.question import FitQuestion
from tonnage.fit.sglang.context import sglang_context_limit

_DEFAULT_GPUS_PER_NODE: Final = 8
"""For a device without this figure in the catalogue: every current platform with more than four
data-centre GPUs in a server has eight."""

_SETTINGS: Final = {
    "enable_expert_parallel": Setting.EXPERTS,
    "max_num_seqs": Setting.SEQUENCES,
    "max_num_batched_tokens": Setting.BATCH,
    "kv_cache_dtype": Setting.CACHE_DTYPE,
    "enforce_eager": Setting.GRAPHS,
    "fully_sharded_loras": Setting.ADAPTER_SHARDING,
    "lora_target_modules": Setting.ADAPTER_TARGETS,
    "tensor_parallel_size": Setting.SPLIT,
    "quantization": Setting.QUANTIZATION,
    "max_model_len": Setting.CONTEXT,
}
"""Arguments that fix a setting for the advice. A given utilization does not: the advice lowers it
only if the utilization itself is too high."""


_ADAPTER_FLAGS: Final = frozenset(
    {"enable_lora", "max_loras", "max_lora_rank", "lora_target_modules", "fully_sharded_loras"}
)


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
    """Read the flags about one engine: a question for each accelerator that they name.

    Raises InputError naming the flag or file and the expected form.
    """
    extra, settings = _read_settings(options)
    devices, notes = _select_devices(options, catalog)
    if options.engine == Engine.SGLANG:
        devices, notes = _keep_calculated(devices, notes)
    given = _Given(options, extra, settings, Files(options, catalog))
    return _make_flags(given, devices, notes, catalog)


def read_flags_of_engines(
    options: argparse.Namespace, catalog: Catalog
) -> Mapping[Engine, tuple[Flags, ...] | str]:
    """Read the flags about every engine, each with its own flags: the same accelerators for all, or
    why the engine does not serve what the flags ask for.

    Raises InputError naming the flag or file and the expected form.
    """
    files = Files(options, catalog)
    devices, notes = _select_devices(options, catalog)
    answers: dict[Engine, tuple[Flags, ...] | str] = {}
    extra = _read_extra_arguments(options.extra_args)
    own = options_for_vllm(options, extra.settings)
    given = _Given(own, *_read_settings(own), files)
    answers[Engine.VLLM] = _make_flags(given, devices, notes, catalog)
    try:
        own = options_for_sglang(options, extra.settings)
        given = _Given(own, *_read_settings(own), files)
    except InputError as error:
        answers[Engine.SGLANG] = str(error)
    else:
        answers[Engine.SGLANG] = _make_flags(given, devices, notes, catalog)
    return answers


@dataclass(frozen=True, slots=True)
class _Given:
    """The flags of one engine, and the settings in them by the names of EngineOptions."""

    options: argparse.Namespace
    extra: ExtraArguments
    settings: Mapping[str, Any]
    files: Files

    @property
    def engine(self) -> Engine:
        return Engine(self.options.engine)


def _make_flags(
    given: _Given, devices: Sequence["_Device"], notes: Sequence[str], catalog: Catalog
) -> tuple[Flags, ...]:
    options, settings, engine = given.options, given.settings, given.engine
    checkpoint = given.files.checkpoint(settings)
    version, version_notes = _resolve_version(options.vllm_version, catalog)
    notes = [*notes, *version_notes, *list_assumptions(checkpoint), *given.extra.notes]
    notes += list_layout_notes(settings)
    if options.nodes > 1:
        notes.append(
            f"{options.nodes} nodes: no speed is estimated, for their network is not known"
        )
    if vars(options).get("context_overrides") == "":
        notes.append("--hf-overrides was ignored: another config.json cannot be calculated")
    length = _default_length(checkpoint.shape, engine, version, catalog)
    if "max_model_len" not in settings:
        flag = WORDS[engine].context_flag
        notes.append(f"without {flag} the model's own length counts: {length:,} tokens")
    if engine is Engine.SGLANG:
        notes += _list_sglang_notes(version)
    workload = _read_workload(options)
    engine_options = read_engine_options(settings, version, length, given.extra.stated)
    return tuple(
        Flags(
            FitQuestion(
                checkpoint,
                device.accelerator,
                device.size_bytes,
                read_parallelism(settings, options.nodes),
                engine_options,
                workload.tokens,
                given.files.corrections,
                memory=WORDS[engine].memory,
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


def _read_settings(options: argparse.Namespace) -> tuple[ExtraArguments, dict[str, Any]]:
    """The extra arguments, and all settings by the names of EngineOptions."""
    if options.engine == Engine.SGLANG:
        return ExtraArguments({}), sglang_settings(options)
    refuse_sglang_flags(options)
    extra = _read_extra_arguments(options.extra_args)
    return extra, _with_adapters({**extra.settings, **vars(options)}, vars(options))


def _default_length(shape: ModelShape, engine: Engine, version: str, catalog: Catalog) -> int:
    if engine is Engine.SGLANG:
        return sglang_context_limit(shape)
    return default_context(shape, catalog.release(version))


def _list_sglang_notes(version: str) -> Iterator[str]:
    yield f"weights and valid TP sizes are those of vLLM {version}; SGLang's were not measured"
    yield "no speed is estimated for SGLang"


def _with_adapters(settings: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with adapters on if a flag of this command describes them.

    Among extra arguments --enable-lora decides, as in vLLM.
    """
    return {**settings, "enable_lora": True} if flags.keys() & _ADAPTER_FLAGS else settings


def _gpus_per_node(options: argparse.Namespace, accelerator: Accelerator) -> int:
    return options.gpus_per_node or accelerator.gpus_per_node or _DEFAULT_GPUS_PER_NODE


def _read_extra_arguments(text: str) -> ExtraArguments:
    """Split the extra arguments as a shell would, and parse them."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--extra-args: {error}") from None
    refuse_in_extra_arguments(arguments)
    return read_extra_arguments("--extra-args", arguments)


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


def _keep_calculated(
    devices: Sequence[_Device], notes: list[str]
) -> tuple[Sequence[_Device], list[str]]:
    """The devices on which SGLang's memory is calculated, and a note on the others."""
    known = load_sglang_memory().architectures
    calculated = [device for device in devices if device.accelerator.arch in known]
    names = ", ".join(one.accelerator.id for one in devices if one not in calculated)
    if not calculated:
        raise InputError(
            f"--engine sglang: the memory of {names} is not calculated yet: expected an "
            f"accelerator of architecture {', '.join(sorted(known))}"
        )
    left_out = f"{names}: left out, their memory is not calculated for SGLang yet"
    return calculated, [*notes, *([left_out] if names else [])]


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
