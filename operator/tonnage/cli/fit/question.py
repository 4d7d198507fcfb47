"""Turns a validated case of a batch into a question for the memory calculation."""

from dataclasses import dataclass
from typing import Any, Final

from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import CheckpointError
from tonnage.cli.errors import InputError
from tonnage.cli.fit.case import EngineCase, FitCase, unknown_fields
from tonnage.cli.fit.model import (
    apply_file_quantization,
    estimate_file_bytes,
    list_assumptions,
    make_checkpoint,
    read_config,
)
from tonnage.cli.fit.settings import (
    list_layout_notes,
    make_unlisted_accelerator,
    read_engine_options,
    read_extra_arguments,
    read_parallelism,
)
from tonnage.cli.fit.vllm.release import ResolvedRelease, resolve_release
from tonnage.fit.context import default_context, override_context
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.questions.question import FitQuestion

_NO_DEVICE_BYTES: Final = 1
"""Placeholder for unknown device memory: weights and KV cache per token do not depend on it, and
the default batch is that of the smallest cards."""


@dataclass(frozen=True, slots=True)
class CaseQuestion:
    """A question, its assumptions as notes, and whether the memory of the device is known."""

    question: FitQuestion
    notes: tuple[str, ...]
    device_known: bool = True


def make_question(case: FitCase, catalog: Catalog) -> CaseQuestion:
    """Make the question of a case. Raises InputError naming the invalid field."""
    extra = read_extra_arguments("engine.extraArgs", case.engine.extra_args)
    try:
        shape = read_config(case.model.config)
    except CheckpointError as error:
        raise InputError(f"model.config: {error}") from None
    try:
        shape = override_context(shape, extra.settings.get("context_overrides", ""))
    except CheckpointError as error:
        message = f"engine.extraArgs: with the overrides of config.json: {error}"
        raise InputError(message) from None
    release = _resolve_release(case.engine.vllm_version, catalog.default_release)
    settings = {**extra.settings, **_explicit_settings(case.engine)}
    longest = default_context(shape, catalog.release(release.version))
    accelerator = select_accelerator(case, catalog)
    device_bytes = case.device_memory_bytes or accelerator.memory_bytes
    shape = apply_file_quantization(shape, settings.get("quantization"))
    size_bytes = case.model.checkpoint_bytes or estimate_file_bytes(shape, case.model.id or "")
    checkpoint = make_checkpoint(shape, size_bytes)
    question = FitQuestion(
        checkpoint,
        accelerator,
        device_bytes or _NO_DEVICE_BYTES,
        read_parallelism(settings),
        read_engine_options(settings, release.version, longest, extra.stated),
        memory=VLLM_MEMORY,
    )
    notes = (
        *([release.note] if release.note else []),
        *list_assumptions(checkpoint),
        *extra.notes,
        *list_layout_notes(settings),
        *(f"{name} is not known and was ignored" for name in unknown_fields(case)),
    )
    return CaseQuestion(question, notes, device_known=device_bytes is not None)


def select_accelerator(case: FitCase, catalog: Catalog) -> Accelerator:
    """The accelerator of the catalogue, or an unlisted one of the vendor.

    Raises InputError for an unknown id and if neither id nor vendor is given.
    """
    if case.accelerator is not None:
        try:
            return catalog.accelerator(case.accelerator)
        except UnknownAcceleratorError as error:
            raise InputError(str(error)) from None
    if case.vendor is None:
        raise InputError("accelerator and vendor are missing: expected at least one of them")
    return make_unlisted_accelerator(case.vendor, case.gpus_per_node)


def _resolve_release(text: str | None, default: str) -> ResolvedRelease:
    """The release of a case; without one, the newest known with a note."""
    if text is None:
        return ResolvedRelease(default, f"the vLLM version is not known; planned like {default}")
    release = resolve_release(text)
    if release is None:
        return ResolvedRelease(default, f"vLLM {text!r} names no release; planned like {default}")
    return release


def _explicit_settings(engine: EngineCase) -> dict[str, Any]:
    """The settings of the case; the extra arguments decide those that are null or false."""
    settings = engine.model_dump(
        exclude={"vllm_version", "extra_args", "expert_parallel_size", *(engine.model_extra or {})}
    )
    return {
        name: value for name, value in settings.items() if value is not None and value is not False
    }
