"""From a checked case to the question that the memory calculation answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.checkpoint.model import CheckpointError
from tonnage.cli.errors import InputError
from tonnage.cli.fit_arguments import engine_settings
from tonnage.cli.fit_case import Case, EngineCase, unknown_fields
from tonnage.cli.fit_extra import BadArgumentError, ExtraArguments, parse_extra_arguments
from tonnage.cli.fit_model import doubts, make_checkpoint, named_bytes, read_config, stored_as
from tonnage.cli.fit_version import MeantRelease, find_release
from tonnage.fit.context import default_context
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.question import FitQuestion

_NO_DEVICE_BYTES: Final = 1
"""Stands for memory that is not known: weights and KV cache of a token do not depend on it, and
the default batch is that of the smallest cards."""

_RESOURCES: Final = {Vendor.NVIDIA: "nvidia.com/gpu", Vendor.AMD: "amd.com/gpu"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, what was taken for granted in it, and whether the device's memory is known."""

    question: FitQuestion
    notes: tuple[str, ...]
    device_known: bool = True


def ask(case: Case, catalog: Catalog) -> Asked:
    """The question of a case. Raises InputError naming the field that cannot be used."""
    try:
        shape = read_config(case.model.config)
    except CheckpointError as error:
        raise InputError(f"model.config: {error}") from None
    extra = read_extra_arguments("engine.extraArgs", case.engine.extra_args)
    release = _release_of(case.engine.vllm_version, catalog.default_release)
    given = {**extra.settings, **_stated(case.engine)}
    longest = default_context(shape, catalog.release(release.version))
    accelerator = find_accelerator(case, catalog)
    device_bytes = case.device_memory_bytes or accelerator.memory_bytes
    stored = stored_as(shape, given.get("quantization"))
    size = case.model.checkpoint_bytes or named_bytes(stored, case.model.id or "")
    checkpoint = make_checkpoint(stored, size)
    question = FitQuestion(
        checkpoint,
        accelerator,
        device_bytes or _NO_DEVICE_BYTES,
        split_of(given),
        options_of(given, release.version, longest, extra.stated),
    )
    notes = (
        *([release.note] if release.note else []),
        *doubts(checkpoint),
        *extra.notes,
        *layout_notes(given),
        *(f"{name} is not known and was ignored" for name in unknown_fields(case)),
    )
    return Asked(question, notes, device_known=device_bytes is not None)


def read_extra_arguments(where: str, arguments: Sequence[str]) -> ExtraArguments:
    """The further arguments of a server. Raises InputError that says where they were given."""
    try:
        return parse_extra_arguments(arguments)
    except BadArgumentError as error:
        raise InputError(f"{where}: {error}") from None


def split_of(given: Mapping[str, Any]) -> Parallelism:
    """The layout among the settings."""
    return Parallelism(
        tensor=given.get("tensor_parallel_size") or 1,
        pipeline=given.get("pipeline_parallel_size") or 1,
        data=given.get("data_parallel_size") or 1,
    )


def layout_notes(given: Mapping[str, Any]) -> Iterator[str]:
    """What the figures mean in this layout."""
    ranks = given.get("data_parallel_size") or 1
    if ranks > 1:
        yield f"data parallel {ranks}: the KV cache and the requests are those of one rank"


def options_of(
    given: Mapping[str, Any], version: str, default_length: int, stated: frozenset[str]
) -> EngineOptions:
    """The engine's options among the settings, and the arguments that were `stated` beside them."""
    options = EngineOptions(version, default_length, stated=stated)
    return replace(options, **engine_settings(given))


def find_accelerator(case: Case, catalog: Catalog) -> Accelerator:
    """The device of the catalogue, or one of that vendor of which nothing else is known.

    Raises InputError for an id that is not in the catalogue and when neither id nor vendor is
    given.
    """
    if case.accelerator is not None:
        try:
            return catalog.accelerator(case.accelerator)
        except UnknownAcceleratorError as error:
            raise InputError(str(error)) from None
    if case.vendor is None:
        raise InputError("accelerator and vendor are missing: expected at least one of them")
    return unlisted_accelerator(case.vendor, case.gpus_per_node)


def unlisted_accelerator(vendor: Vendor, gpus_per_node: int | None) -> Accelerator:
    """A card that the catalogue does not have: its memory is given, its arithmetic unknown."""
    return Accelerator(
        id=f"unlisted-{vendor}",
        vendor=vendor,
        name=f"unlisted {vendor.upper()} card",
        arch="unknown",
        resource=_RESOURCES[vendor],
        gpus_per_node=gpus_per_node,
        memory_bytes=None,
        memory_bytes_vf=None,
        memory_bandwidth=None,
        bf16_flops=None,
        fp8_flops=None,
        fp4_flops=None,
        link_bandwidth=None,
        pair_bandwidth=None,
        fp8_dialect=None,
        native_fp4=False,
        supported=True,
        unsupported_reason=None,
        matches=(),
        pci_device_ids=(),
        pci_device_ids_vf=(),
        price=None,
    )


def _release_of(text: str | None, default: str) -> MeantRelease:
    """The release of a case; what names none is planned like the newest known, and says so."""
    if text is None:
        return MeantRelease(default, f"the vLLM version is not known; planned like {default}")
    found = find_release(text)
    if found is None:
        return MeantRelease(default, f"vLLM {text!r} names no release; planned like {default}")
    return found


def _stated(engine: EngineCase) -> dict[str, Any]:
    """What the case says itself; null and false leave it to the other arguments."""
    stated = engine.model_dump(
        exclude={"vllm_version", "extra_args", "expert_parallel_size", *(engine.model_extra or {})}
    )
    return {
        name: value for name, value in stated.items() if value is not None and value is not False
    }
