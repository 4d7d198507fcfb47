"""The smallest change of a spec that makes its model fit, for each pool whose memory is too small.

It is the advice of `tonnage fit`, in fields of the spec instead of flags. The operator chooses the
parallelism, so the advice starts from the most GPUs of a replica and changes other settings.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.api.conditions import Reason
from tonnage.api.inference import DEFAULT_ENGINE, InferenceDeploymentSpec
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.cli.plan.planning import Planned
from tonnage.fit.legality.parallelism import legal_degrees
from tonnage.fit.messages import format_parallelism
from tonnage.fit.model import Parallelism
from tonnage.fit.questions.advice import Change, Setting, Step, advise
from tonnage.fit.questions.question import FitQuestion
from tonnage.fleet.model import Pool
from tonnage.placement.filters.screening import Devices, screen_pool
from tonnage.placement.load import Load, load_of
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.scoring.sizing import required_tokens
from tonnage.reconcile.accept import Accepted, accept
from tonnage.reconcile.scheduling.context import Dependencies

_TOO_LITTLE_MEMORY: Final = frozenset(
    {
        RejectedReason.KV_CACHE_DOES_NOT_FIT,
        RejectedReason.OVERHEAD_DOES_NOT_FIT,
        RejectedReason.WEIGHTS_DO_NOT_FIT,
        RejectedReason.NO_INTERCONNECT,
    }
)
_EXTRA_ARGUMENTS: Final = "spec.engine.vllm.extraArgs"


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    """The changes that make the model fit on a pool, the smallest first; empty if none does."""

    pool: Pool
    changes: tuple[Change, ...]


def advise_plan(
    planned: Planned, pools: Sequence[Pool], dependencies: Dependencies
) -> tuple[PoolAdvice, ...]:
    """Advice for a model that fits on no pool, the nearest pool first; one for equal devices. A
    pool where it needs several nodes is left out if no setting helps: its verdict has the field."""
    accepted = accept(planned.observation, dependencies.catalog)
    if not isinstance(accepted, Accepted):
        return ()
    if accepted.spec.engine.choices != (DEFAULT_ENGINE,):  # the advice is about vLLM's settings
        return ()
    by_name = {pool.name: pool for pool in pools}
    if not _fits_nowhere(planned.plan.status, by_name):
        return ()
    corrections = dependencies.corrections.counting_in(planned.key.namespace)
    load = load_of(accepted.spec, accepted.checkpoint, dependencies.catalog, corrections)
    judged: dict[Devices, PoolAdvice] = {}
    for candidate in planned.plan.status.candidates:
        pool = by_name.get(candidate.pool)
        if candidate.reason not in _TOO_LITTLE_MEMORY or pool is None:
            continue
        devices = screen_pool(accepted.spec.placement, pool)
        if not isinstance(devices, Rejection) and devices not in judged:
            changes = _advise(accepted.spec, load, devices, dependencies.catalog)
            if changes or candidate.reason != RejectedReason.NO_INTERCONNECT:
                judged[devices] = PoolAdvice(pool, changes)
    return tuple(judged.values())


def _fits_nowhere(status: InferenceDeploymentStatus, pools: Mapping[str, Pool]) -> bool:
    """Whether no pool has enough memory, of those whose devices are known. A pool without nodes may
    have it, which does not help now."""
    reasons = {one.reason for one in status.conditions}
    if Reason.INSUFFICIENT_GPUS not in reasons:
        return Reason.DOES_NOT_FIT in reasons
    return all(
        one.verdict == "Rejected"
        and one.reason != RejectedReason.INSUFFICIENT_GPUS
        and (one.reason != RejectedReason.NO_USABLE_NODES or not pools[one.pool].nodes)
        for one in status.candidates
        if one.pool in pools
    )


def format_advice(advice: Sequence[PoolAdvice]) -> Iterator[str]:
    """A line with the smallest change for each pool, and one for the pools without any."""
    for one in advice:
        if one.changes:
            yield _format_change(one.changes[0], one.pool)
    others = ", ".join(one.pool.name for one in advice if not one.changes)
    if others:
        yield (
            f"no setting makes it fit on {others}: take devices with more memory, or a checkpoint "
            "with smaller weights"
        )


def _format_change(change: Change, pool: Pool) -> str:
    fields = ", ".join(f"{field}: {_format_value(value)}" for field, value in list_fields(change))
    tight = "tightly " if change.fit.tight else ""
    return (
        f"next step: {fields} (fits {tight}on {pool.name} with "
        f"{format_parallelism(change.question.parallelism)}; the KV cache then holds "
        f"{change.fit.account.kv_cache_tokens:,} tokens)"
    )


def advice_data(advice: PoolAdvice) -> dict[str, Any]:
    """The advice as JSON data, all changes with the smallest first."""
    return {
        "pool": advice.pool.name,
        "changes": [
            {
                "fields": dict(list_fields(change)),
                "tight": change.fit.tight,
                "tensorParallelSize": change.question.parallelism.tensor,
            }
            for change in advice.changes
        ],
    }


def list_fields(change: Change) -> Iterator[tuple[str, Any]]:
    """The fields of the spec to set, with their values."""
    flags = engine_flags().flags
    for step in change.steps:
        flag = flags.get(step.setting)
        field = flag.field if flag else None
        yield (field, step.value) if field else (_EXTRA_ARGUMENTS, [step.argument])


def _advise(
    spec: InferenceDeploymentSpec, load: Load, devices: Devices, catalog: Catalog
) -> tuple[Change, ...]:
    parallelism = _largest_parallelism(load, devices, catalog)
    question = FitQuestion(
        load.checkpoint,
        devices.accelerator,
        devices.device_bytes,
        parallelism,
        load.options,
        required_tokens(load, parallelism),
        load.corrections,
        memory=load.memory,
    )
    changes = advise(question, _chosen(spec), load.allow, devices.most_per_node, catalog)
    return tuple(_drop_split(change) for change in changes)


def _largest_parallelism(load: Load, devices: Devices, catalog: Catalog) -> Parallelism:
    release = catalog.release(load.options.release)
    legal = legal_degrees(load.checkpoint.shape, load.options, release, devices.most_per_node)
    return max(legal, key=lambda each: (each.gpus, each.tensor), default=Parallelism())


def _chosen(spec: InferenceDeploymentSpec) -> Collection[Setting]:
    """The settings that the user chose, which the advice changes last."""
    engine = spec.engine.vllm
    chosen = {
        Setting.EXPERTS: Setting.EXPERTS.value in engine.extra_args,
        Setting.SEQUENCES: engine.max_num_seqs is not None,
        Setting.BATCH: engine.max_num_batched_tokens is not None,
        Setting.CACHE_DTYPE: spec.kv_cache_dtype != "auto",
        Setting.GRAPHS: engine.enforce_eager,
        Setting.SPLIT: True,
        Setting.QUANTIZATION: spec.quantization != "auto",
        Setting.CONTEXT: True,
    }
    return frozenset(setting for setting, is_chosen in chosen.items() if is_chosen)


def _drop_split(change: Change) -> Change:
    """The change without the parallelism, which the operator chooses."""
    steps: tuple[Step, ...] = tuple(
        step for step in change.steps if step.setting is not Setting.SPLIT
    )
    return replace(change, steps=steps)


def _format_value(value: object) -> str:
    """The value as YAML in one line."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return str(value)
