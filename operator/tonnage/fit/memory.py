"""Judges whether a model and the tokens it must hold fit on given GPUs.

The terms are those of vLLM (vllm/v1/worker/gpu_worker.py determine_available_memory):
total x utilization - weights - activation peak - non-torch memory - graphs = KV cache,
less the correction measured on starts with the same key.
"""

from collections.abc import Iterable
from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.fit.activation.graphs import graph_bytes
from tonnage.fit.activation.peak import activation_peak
from tonnage.fit.activation.workspaces import workspace_bytes
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.budget import budget_bytes, charges_graphs, outside_budget_terms
from tonnage.fit.calibration.corrections import (
    UNCORRECTED,
    Corrections,
    MemoryCorrection,
    correction_key,
    served_model,
)
from tonnage.fit.calibration.uncertainty import band_bytes, remaining_uncertainty
from tonnage.fit.kv_cache.plan import KvCachePlan, plan_kv_cache
from tonnage.fit.legality.parallelism import check_parallelism
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
from tonnage.fit.weights.total import weights_per_gpu


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

    `device_bytes` is the memory of one device as torch reports it, `required_tokens` the tokens
    that the KV cache must hold at once, at least `max_model_len`, `corrections` come from earlier
    starts. Raises ValueError for an invalid vLLM version.
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
    outside_terms = outside_budget_terms(accelerator.vendor, graphs, options, release)
    shortage = _shortage_in_budget(account) or _shortage_outside_budget(account, outside_terms)
    if shortage is not None:
        return shortage
    return MemoryFit(account, required_tokens, tight=account.margin_bytes < account.band_bytes)


def _find_correction(
    corrections: Corrections,
    shape: ModelShape,
    accelerator: Accelerator,
    parallelism: Parallelism,
    options: EngineOptions,
    release: EngineRelease,
) -> MemoryCorrection | None:
    if not corrections.entries or parallelism.data > 1:  # no start with several engines is measured
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
    """The bytes by term; the KV cache gets the rest, or the bytes that the option sets."""
    accelerator, device_bytes = device
    shape, vendor = checkpoint.shape, accelerator.vendor
    budget = budget_bytes(device_bytes, options, release)
    weights = weights_per_gpu(checkpoint, parallelism, options, accelerator, release)
    buffers = workspace_bytes(shape, parallelism, options, batch, accelerator)
    weights = max(0, weights + buffers - options.cpu_offload_bytes)
    activation = activation_peak(shape, parallelism, options, batch, accelerator, release)
    non_torch = non_torch_bytes(parallelism, vendor, release)
    graphs_in_budget = graphs if charges_graphs(vendor, options, release) else 0
    extra = correction.extra_bytes if correction else 0
    others = weights + activation.total_bytes + non_torch + graphs_in_budget + extra
    kv_cache = budget - others
    if options.kv_cache_memory_bytes is not None:
        kv_cache = options.kv_cache_memory_bytes
        budget = kv_cache + others
    uncertainty = remaining_uncertainty(release.uncertainty, correction)
    return MemoryAccount(
        device_bytes=device_bytes,
        budget_bytes=budget,
        weights_bytes=weights,
        activation_bytes=activation.total_bytes,
        non_torch_bytes=non_torch,
        graph_bytes=graphs_in_budget,
        kv_cache_bytes=kv_cache,
        request_kv_bytes=plan.request_bytes(options.max_model_len),
        kv_bytes_per_token=plan.bytes_per_token,
        kv_cache_tokens=plan.tokens(kv_cache, options.max_model_len),
        needed_kv_bytes=needed_kv,
        band_bytes=band_bytes(vendor, weights, activation, graphs_in_budget, uncertainty),
        correction_bytes=extra,
    )


def _shortage_in_budget(account: MemoryAccount) -> DoesNotFit | None:
    """The first term that does not fit in the rest of the budget."""
    terms = (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        (MemoryTerm.ACTIVATION, account.activation_bytes),
        (MemoryTerm.NON_TORCH, account.non_torch_bytes),
        (MemoryTerm.GRAPHS, account.graph_bytes),
        (MemoryTerm.CORRECTION, account.correction_bytes),
        (MemoryTerm.KV_CACHE, account.needed_kv_bytes),
    )
    return _first_shortage(terms, account.budget_bytes, account)


def _shortage_outside_budget(
    account: MemoryAccount, terms: Iterable[tuple[MemoryTerm, int]]
) -> DoesNotFit | None:
    """The first term that does not fit in the memory outside the budget."""
    outside = max(0, account.device_bytes - account.budget_bytes)
    shortage = _first_shortage(terms, outside, account)
    return None if shortage is None else replace(shortage, outside_budget=True)


def _first_shortage(
    terms: Iterable[tuple[MemoryTerm, int]], available: int, account: MemoryAccount
) -> DoesNotFit | None:
    for term, needed in terms:
        if needed > available:
            return DoesNotFit(term, needed, available, account)
        available -= needed
    return None
