"""Which parallelisms vLLM accepts: its checks before and during model construction, in order."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tonnage.catalog.vllm.parallelism import load_split_rules
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Attending, ModelShape
from tonnage.fit.layout import Layout, divides
from tonnage.fit.legality.adapters import check_adapters
from tonnage.fit.legality.quantization import check_quantization
from tonnage.fit.legality.sharding import check_layers
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism
from tonnage.fit.options import for_parallelism
from tonnage.fit.weights.tensors import padded_vocabulary

ParallelismCheck = Callable[[Layout], IllegalParallelism | None]


def check_parallelism(
    shape: ModelShape, parallelism: Parallelism, options: EngineOptions, release: EngineRelease
) -> IllegalParallelism | None:
    """The first rule that the parallelism breaks, None if vLLM accepts it."""
    layout = Layout(shape, parallelism, options, release)
    for check in _CHECKS:
        illegal = check(layout)
        if illegal is not None:
            return illegal
    return None


def legal_degrees(
    shape: ModelShape, options: EngineOptions, release: EngineRelease, max_gpus: int
) -> tuple[Parallelism, ...]:
    """Legal tensor-parallel sizes within a node of `max_gpus` GPUs, smallest first."""
    candidates = (
        Parallelism(tensor=size) for size in release.tensor_parallel_sizes if size <= max_gpus
    )
    return _keep_legal(candidates, shape, options, release)


def legal_over_nodes(
    shape: ModelShape,
    options: EngineOptions,
    release: EngineRelease,
    gpus_per_node: int,
    max_nodes: int,
) -> tuple[Parallelism, ...]:
    """Legal parallelisms over 2 to `max_nodes` whole nodes of as many GPUs, the fewest nodes first.

    The GPUs of a node are one tensor-parallel group, and each node is a pipeline stage: only the
    hidden states of a stage go over the network. Where that group is not legal, a node has several
    stages of the largest legal one.
    """
    sizes = [size for size in release.tensor_parallel_sizes if gpus_per_node % size == 0]
    over_nodes = []
    for nodes in range(2, max_nodes + 1):
        candidates = (
            Parallelism(tensor=size, pipeline=nodes * gpus_per_node // size, nodes=nodes)
            for size in sorted(sizes, reverse=True)
        )
        legal = (
            candidate
            for candidate in candidates
            if check_parallelism(shape, candidate, options, release) is None
        )
        over_nodes += [next(legal, None)]
    return tuple(parallelism for parallelism in over_nodes if parallelism is not None)


def legal_tensor_over_nodes(
    shape: ModelShape,
    options: EngineOptions,
    release: EngineRelease,
    gpus_per_node: int,
    max_nodes: int,
) -> tuple[Parallelism, ...]:
    """Legal tensor-parallel groups of all GPUs of 2 to `max_nodes` whole nodes, the fewest first.

    Every layer sends its outputs over the network twice.
    """
    candidates = (
        Parallelism(tensor=nodes * gpus_per_node, nodes=nodes) for nodes in range(2, max_nodes + 1)
    )
    return _keep_legal(candidates, shape, options, release)


def legal_data_parallel(
    shape: ModelShape,
    options: EngineOptions,
    release: EngineRelease,
    max_gpus: int,
) -> tuple[Parallelism, ...]:
    """Legal data-parallel groups of a mixture-of-experts model within a node of `max_gpus` GPUs, of
    as many GPUs as tensor-parallel ones would have.

    Each GPU has a whole copy of the attention layers and equally many experts, as some classes
    require. None for a dense model, of which more replicas do the same.
    """
    sizes = (size for size in release.tensor_parallel_sizes if 1 < size <= max_gpus)
    candidates = (Parallelism(data=size) for size in sizes)
    return _keep_legal(_with_equal_experts(candidates, shape), shape, options, release)


def legal_data_over_nodes(
    shape: ModelShape,
    options: EngineOptions,
    release: EngineRelease,
    gpus_per_node: int,
    max_nodes: int,
) -> tuple[Parallelism, ...]:
    """Legal data-parallel groups of all GPUs of 2 to `max_nodes` whole nodes, the fewest first."""
    candidates = (
        Parallelism(data=nodes * gpus_per_node, nodes=nodes) for nodes in range(2, max_nodes + 1)
    )
    return _keep_legal(_with_equal_experts(candidates, shape), shape, options, release)


def _with_equal_experts(
    candidates: Iterable[Parallelism], shape: ModelShape
) -> Iterator[Parallelism]:
    experts = shape.experts
    if experts is not None:
        yield from (each for each in candidates if experts.count % each.data == 0)


def _keep_legal(
    candidates: Iterable[Parallelism],
    shape: ModelShape,
    options: EngineOptions,
    release: EngineRelease,
) -> tuple[Parallelism, ...]:
    return tuple(
        candidate
        for candidate in candidates
        if check_parallelism(shape, candidate, for_parallelism(options, candidate), release) is None
    )


def _check_nodes(layout: Layout) -> IllegalParallelism | None:
    """Source: vllm/config/parallel.py; earlier releases need Ray."""
    rules, version = load_split_rules(), layout.release.version
    if layout.parallelism.nodes == 1 or rules.runs_over_nodes(version):
        return None
    why = (
        f"vLLM {version} is not known to run a replica on several nodes without Ray; use"
        f" {rules.over_nodes_since} or later"
    )
    return IllegalParallelism("SeveralNodes", why)


def _check_attention_heads(layout: Layout) -> IllegalParallelism | None:
    """Source: vllm/config/model.py verify_with_parallel_config."""
    for mixer in layout.shape.mixer_counts:
        if isinstance(mixer, Attending) and mixer.heads % layout.tensor:
            heads = mixer.heads
            return layout.refuse(
                "AttentionHeads",
                f"{heads} attention heads are not divisible by TP {layout.tensor}",
                divides(heads),
            )
    return None


def _check_expert_parallelism(layout: Layout) -> IllegalParallelism | None:
    """Source: vllm/config/model.py _verify_with_expert_parallelism, models/deepseek_v4."""
    if not layout.options.enable_expert_parallel:
        return None
    experts, rules = layout.shape.experts, load_split_rules()
    if experts is None:
        why = "a dense model has no experts to distribute; leave out --enable-expert-parallel"
        return IllegalParallelism("ExpertParallel", why)
    data, ranks = layout.parallelism.data, layout.tensor * layout.parallelism.data
    if layout.shape.architecture not in rules.evenly or experts.count % ranks == 0:
        return None
    group = f"TP {layout.tensor}, DP {data}" if data > 1 else f"TP {layout.tensor}"
    return layout.refuse(
        "ExpertParallel",
        f"{experts.count} experts are not divisible by {group}, and "
        f"{layout.shape.architecture} needs equally many on each GPU",
        lambda size: experts.count % (size * data) == 0,
    )


def _check_pipeline(layout: Layout) -> IllegalParallelism | None:
    """Source: SupportsPP in vllm/model_executor/models/interfaces.py."""
    stages, shape = layout.parallelism.pipeline, layout.shape
    if stages == 1:
        return None
    if shape.architecture in layout.release.no_pipeline:
        why = f"{shape.architecture} does not support pipeline parallelism; use PP 1"
        return IllegalParallelism("PipelineParallel", why)
    if stages > shape.layers:
        why = f"{shape.layers} layers cannot fill {stages} pipeline stages"
        return IllegalParallelism("PipelineParallel", why)
    return None


def _check_vocabulary(layout: Layout) -> IllegalParallelism | None:
    """Embeddings and head are sharded by rows, after padding.

    Source: vllm/model_executor/layers/vocab_parallel_embedding.py.
    """
    vocabulary, padded = layout.shape.vocab_size, padded_vocabulary(layout.shape)
    if padded % layout.tensor == 0:
        return None
    return layout.refuse(
        "Vocabulary",
        f"a vocabulary of {vocabulary}, padded to {padded}, is not divisible by TP {layout.tensor}",
        divides(padded),
    )


_CHECKS: Final[tuple[ParallelismCheck, ...]] = (
    _check_nodes,
    _check_attention_heads,
    _check_expert_parallelism,
    _check_pipeline,
    _check_vocabulary,
    check_layers,
    check_quantization,
    check_adapters,
)
