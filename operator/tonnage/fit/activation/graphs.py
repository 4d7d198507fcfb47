"""Memory of CUDA and HIP graphs."""

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.profiling import CaptureSizes
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.activation.sampler import runs_on_v2
from tonnage.fit.batch import Batch
from tonnage.fit.degrees import lookup_by_gpus
from tonnage.fit.model import EngineOptions, Parallelism


def graph_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    accelerator: Accelerator,
    release: EngineRelease,
) -> int:
    """Memory of captured graphs, whether inside or outside the budget.

    vLLM captures a graph for each batch size. V1 cuts a model at its attention layers
    (vllm/compilation/backends.py), so a graph has one piece more than the model has layers.
    """
    if options.enforce_eager:
        return 0
    costs, vendor = release.graphs, accelerator.vendor
    sizes = count_sizes(
        costs.capture_sizes,
        accelerator.arch,
        shape.architecture,
        batch.max_num_seqs * (1 + options.speculative_tokens),
        batch.max_num_batched_tokens,
    )
    pieces = -(-shape.layers // parallelism.pipeline) + 1
    piece = lookup_by_gpus(costs.piece_bytes[vendor], parallelism.tensor)
    # With and without adapters (vllm/config/compilation.py cudagraph_specialize_lora).
    captures = 2 if options.enable_lora else 1
    if runs_on_v2(release.profile_run, shape):
        piece += costs.v2_piece_bytes
    return captures * sizes * (costs.size_bytes[vendor] + pieces * piece)


def count_sizes(
    rule: CaptureSizes, arch: str, architecture: str, sequences: int, max_num_batched_tokens: int
) -> int:
    """How many batch sizes vLLM captures graphs for, on a GPU of `arch` for a model of class
    `architecture`; `sequences` have one token each."""
    largest = rule.largest_by_arch.get(arch, rule.largest)
    if rule.per_sequence is not None:
        largest = min(largest, rule.per_sequence * sequences)
    largest = min(rule.largest_by_class.get(architecture, largest), max_num_batched_tokens)
    multiples_of_8_limit = (
        largest if rule.coarse_from is None else min(largest, rule.coarse_from - 1)
    )
    multiples_of_16 = 0
    if rule.coarse_from is not None and largest >= rule.coarse_from:
        multiples_of_16 = (largest - rule.coarse_from) // 16 + 1
    return sum(size <= largest for size in (1, 2, 4)) + multiples_of_8_limit // 8 + multiples_of_16
