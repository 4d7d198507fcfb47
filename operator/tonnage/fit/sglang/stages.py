"""Pipeline stages of SGLang: which layers, embeddings and output heads each has, and for which
models.

Source: SGLang 0.5.23, sglang/srt/distributed/utils.py get_pp_indices, and the model classes.
"""

from dataclasses import replace
from typing import Final

from tonnage.catalog.sglang import SGLangMemory
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism
from tonnage.fit.sglang.model import Replica
from tonnage.fit.weights.matrix import StageDivision

_RULE: Final = "PipelineParallel"


def stage_sizes(layers: int, stages: int) -> tuple[int, ...]:
    """The number of layers on each pipeline stage; the last ones have the remainder."""
    quotient, remainder = divmod(layers, stages)
    return tuple(quotient + (stage >= stages - remainder) for stage in range(stages))


def stage_replicas(replica: Replica) -> tuple[Replica, ...]:
    """The replica with the layers of each of its stages alone."""
    order = replica.shape.layer_order
    sizes = stage_sizes(len(order), replica.options.pipeline_parallel_size)
    starts = [sum(sizes[:stage]) for stage in range(len(sizes))]
    return tuple(
        replace(replica, shape=replace(replica.shape, layer_order=order[start : start + size]))
        for start, size in zip(starts, sizes, strict=True)
    )


def divide_into_stages(shape: ModelShape, stages: int, memory: SGLangMemory) -> StageDivision:
    """What each of these stages holds."""
    on_all = shape.architecture in memory.pipeline.head_on_all
    return StageDivision(stage_sizes(shape.layers, stages), head_on_all=on_all)


def check_stages(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, memory: SGLangMemory
) -> IllegalParallelism | None:
    """Why SGLang does not run the model in these stages, or why they are not calculated; None
    where neither holds."""
    stages, rules, name = parallelism.pipeline, memory.pipeline, shape.architecture
    if stages == 1:
        return None
    given = sorted(rules.excludes.keys() & options.stated)
    why = None
    if name not in rules.head_on_all | rules.head_on_last:
        known = ", ".join(sorted(rules.head_on_all | rules.head_on_last))
        why = f"pipeline stages of {name} are not calculated for SGLang; those of {known} are"
    elif name in rules.head_on_all and shape.tie_word_embeddings:
        why = f"SGLang has no output head for {name} on the last stage, as it is the embeddings"
    elif stages > shape.layers:
        why = f"{shape.layers} layers cannot fill {stages} pipeline stages"
    elif given:
        why = f"{given[0]} and pipeline stages exclude each other: {rules.excludes[given[0]]}"
    return None if why is None else IllegalParallelism(_RULE, why)
