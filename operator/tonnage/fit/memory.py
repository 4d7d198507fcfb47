"""Does the model fit on these GPUs, with room for the tokens it has to hold?

The terms are those of vLLM (vllm/v1/worker/gpu_worker.py determine_available_memory):
total x utilization - weights - activation peak - non-torch memory - graphs = KV cache,
less what starts like this one were seen to take beyond that.
"""

from collections.abc import Iterable
from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.fit.activation import activation_peak
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.budget import beside_budget, budget_bytes, takes_graphs
from tonnage.fit.corrections import (
    UNCORRECTED,
    Corrections,
    MemoryCorrection,
    correction_key,
    served_model,
)
from tonnage.fit.graphs import graph_bytes
from tonnage.fit.kv_plan import KvCachePlan, plan_kv_cache
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.non_torch import non_torch_bytes
from tonnage.fit.parallelism import check_parallelism
from tonnage.fit.uncertainty import band_bytes, left_unknown
from tonnage.fit.weights import weights_per_gpu
from tonnage.fit.workspaces import workspace_bytes


def judge_fit(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    device_bytes: int,
    parallelism: Parallelism,
    options: EngineOptions,
    required_tokens: int,
    catalog: Catalog,
    corrections: Corrections = UNCORRECTED,
) -> FitVerdict:
    """Whether one replica fits on `parallelism.gpus` devices of `device_bytes` each.

    `device_bytes` is the memory of one device as torch reports it, `required_tokens` what the KV
    cache has to hold at once, at least `max_model_len`, `corrections` what starts before this one
    have taught. Raises ValueError for a vLLM version that is none.
    """
    release = catalog.release(options.vllm_version)
    shape = checkpoint.shape
    illegal = check_parallelism(shape, parallelism, options, release)
    if illegal is not None:
        return illegal
    batch = plan_batch(shape, options, parallelism, accelerator, device_bytes, release)
    graphs = graph_bytes(shape, parallelism, options, batch, accelerator, release)
    plan = plan_kv_cache(shape, parallelism, options, batch, accelerator, release)
    needed = plan.needed_bytes(required_tokens, options.max_model_len)
    device = accelerator, device_bytes
    correction = _find_correction(corrections, shape, accelerator, parallelism, options, release)
    account = _account(
        checkpoint, device, parallelism, options, batch, graphs, plan, needed, release, correction
    )
    beside = beside_budget(accelerator.vendor, graphs, options, release)
    lacking = _lacking_within(account) or _lacking_beside(account, beside)
    if lacking is not None:
        return lacking
    return MemoryFit(account, required_tokens, tight=account.margin_bytes < account.band_bytes)


def _find_correction(
    corrections: Corrections,
    shape: ModelShape,
    accelerator: Accelerator,
    parallelism: Parallelism,
    options: EngineOptions,
    release: EngineRelease,
) -> MemoryCorrection | None:
    if not corrections.entries or parallelism.data > 1:  # never measured with several engines
        return None
    served = served_model(shape, options, release)
    return corrections.find(correction_key(served, accelerator, parallelism))


def _account(
    checkpoint: Checkpoint,
    device: tuple[Accelerator, int],
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    graphs: int,
    plan: KvCachePlan,
    needed_kv: int,
    release: EngineRelease,
    correction: MemoryCorrection | None,
) -> MemoryAccount:
    """Where the bytes go; the KV cache has what the others leave, or what it was given."""
    accelerator, device_bytes = device
    shape, vendor = checkpoint.shape, accelerator.vendor
    budget = budget_bytes(device_bytes, options, release)
    weights = weights_per_gpu(checkpoint, parallelism, options, accelerator, release)
    buffers = workspace_bytes(shape, parallelism, options, batch, accelerator)
    weights = max(0, weights + buffers - options.cpu_offload_bytes)
    activation = activation_peak(shape, parallelism, options, batch, accelerator, release)
    non_torch = non_torch_bytes(parallelism, vendor, release)
    charged = graphs if takes_graphs(vendor, options, release) else 0
    extra = correction.extra_bytes if correction else 0
    others = weights + activation.total_bytes + non_torch + charged + extra
    kv_cache = budget - others
    if options.kv_cache_memory_bytes is not None:
        kv_cache = options.kv_cache_memory_bytes
        budget = kv_cache + others
    unknown = left_unknown(release.uncertainty, correction)
    return MemoryAccount(
        device_bytes=device_bytes,
        budget_bytes=budget,
        weights_bytes=weights,
        activation_bytes=activation.total_bytes,
        non_torch_bytes=non_torch,
        graph_bytes=charged,
        kv_cache_bytes=kv_cache,
        request_kv_bytes=plan.request_bytes(options.max_model_len),
        kv_bytes_per_token=plan.bytes_per_token,
        kv_cache_tokens=plan.tokens(kv_cache, options.max_model_len),
        needed_kv_bytes=needed_kv,
        band_bytes=band_bytes(vendor, weights, activation, charged, unknown),
        correction_bytes=extra,
    )


def _lacking_within(account: MemoryAccount) -> DoesNotFit | None:
    """The first term for which nothing or too little is left of the budget."""
    terms = (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        (MemoryTerm.ACTIVATION, account.activation_bytes),
        (MemoryTerm.NON_TORCH, account.non_torch_bytes),
        (MemoryTerm.GRAPHS, account.graph_bytes),
        (MemoryTerm.CORRECTION, account.correction_bytes),
        (MemoryTerm.KV_CACHE, account.needed_kv_bytes),
    )
    return _lacking(terms, account.budget_bytes, account)


def _lacking_beside(
    account: MemoryAccount, terms: Iterable[tuple[MemoryTerm, int]]
) -> DoesNotFit | None:
    """The first term for which utilization leaves too little free."""
    lacking = _lacking(terms, max(0, account.device_bytes - account.budget_bytes), account)
    return None if lacking is None else replace(lacking, beside_budget=True)


def _lacking(
    terms: Iterable[tuple[MemoryTerm, int]], left: int, account: MemoryAccount
) -> DoesNotFit | None:
    for term, needed in terms:
        if needed > left:
            return DoesNotFit(term, needed, left, account)
        left -= needed
    return None
