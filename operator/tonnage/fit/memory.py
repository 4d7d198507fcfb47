"""Judges whether a model and the tokens it must hold fit on given GPUs.

The terms are those of vLLM (vllm/v1/worker/gpu_worker.py determine_available_memory):
total x utilization - weights - buffers for LoRA adapters - activation peak - non-torch memory -
graphs = KV cache, less the correction measured on starts with the same key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.vllm.profiling import Uncertainty
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.activation.graphs import graph_bytes
from tonnage.fit.activation.peak import ActivationPeak, activation_peak
from tonnage.fit.activation.workspaces import workspace_bytes
from tonnage.fit.batch import plan_batch
from tonnage.fit.budget import budget_bytes, charges_graphs, outside_budget_terms
from tonnage.fit.calibration.corrections import (
    UNCORRECTED,
    Corrections,
    correction_key,
    served_model,
)
from tonnage.fit.calibration.uncertainty import band_bytes, remaining_uncertainty
from tonnage.fit.kv_cache.plan import KvCachePlan, plan_kv_cache
from tonnage.fit.legality.parallelism import check_parallelism
from tonnage.fit.lora.buffers import lora_bytes
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
    StageMemory,
)
from tonnage.fit.non_torch import non_torch_bytes
from tonnage.fit.weights.total import stage_shardings, weights_by_stage


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
    release = catalog.release(options.release)
    shape = checkpoint.shape
    illegal = check_parallelism(shape, parallelism, options, release)
    if illegal is not None:
        return illegal
    batch = plan_batch(shape, options, parallelism, accelerator, device_bytes, release)
    graphs = graph_bytes(shape, parallelism, options, batch, accelerator, release)
    plan = plan_kv_cache(shape, parallelism, options, batch, accelerator, release)
    served = served_model(shape, options, release.version)
    correction = corrections.find(correction_key(served, accelerator, parallelism))
    uncertainty = remaining_uncertainty(release.uncertainty, correction)
    common = _Common(
        accelerator.vendor,
        device_bytes,
        budget_bytes(device_bytes, options, release),
        activation_peak(shape, parallelism, options, batch, accelerator, release),
        non_torch_bytes(parallelism, accelerator.vendor, release),
        round(graphs * release.graphs.charged_share)
        if charges_graphs(shape, accelerator.vendor, options, release)
        else 0,
        correction.extra_bytes if correction else 0,
        uncertainty,
    )
    buffers = workspace_bytes(shape, parallelism, options, batch, accelerator)
    shardings = stage_shardings(shape, parallelism, options, accelerator, release)
    totals = weights_by_stage(checkpoint, parallelism, options, accelerator, release)
    stages = [
        _account(
            common,
            max(0, weights + buffers - options.cpu_offload_bytes),
            lora_bytes(shape, sharding, options),
            plan.of_stage(sharding.stage),
            options,
            required_tokens,
        )
        for sharding, weights in zip(shardings, totals, strict=True)
    ]
    account = _limiting(stages, plan)
    outside_terms = outside_budget_terms(shape, accelerator.vendor, graphs, options, release)
    shortage = _shortage_in_budget(account) or _shortage_outside_budget(account, outside_terms)
    if shortage is not None:
        return shortage
    return MemoryFit(account, required_tokens, tight=account.margin_bytes < account.band_bytes)


@dataclass(frozen=True, slots=True)
class _Common:
    """The terms that are the same on all pipeline stages: the activation peak is that of the last
    stage, which samples."""

    vendor: Vendor
    device_bytes: int
    budget_bytes: int
    activation: ActivationPeak
    non_torch_bytes: int
    graph_bytes: int
    correction_bytes: int
    uncertainty: Uncertainty

    @property
    def total_bytes(self) -> int:
        return (
            self.activation.total_bytes
            + self.non_torch_bytes
            + self.graph_bytes
            + self.correction_bytes
        )


def _account(
    common: _Common,
    weights: int,
    lora: int,
    plan: KvCachePlan,
    options: EngineOptions,
    required_tokens: int,
) -> MemoryAccount:
    """The bytes by term on a stage with these weights, these buffers for adapters, and this plan of
    the KV cache, which gets the rest, or the bytes that the option sets."""
    budget, others = common.budget_bytes, weights + lora + common.total_bytes
    kv_cache = budget - others
    if options.kv_cache_memory_bytes is not None:
        kv_cache = options.kv_cache_memory_bytes
        budget = kv_cache + others
    activation, graphs = common.activation, common.graph_bytes
    return MemoryAccount(
        device_bytes=common.device_bytes,
        budget_bytes=budget,
        weights_bytes=weights,
        lora_bytes=lora,
        activation_bytes=activation.total_bytes,
        non_torch_bytes=common.non_torch_bytes,
        graph_bytes=graphs,
        kv_cache_bytes=kv_cache,
        request_kv_bytes=plan.request_bytes(options.max_model_len),
        kv_bytes_per_token=plan.bytes_per_token,
        kv_cache_tokens=plan.tokens(kv_cache, options.max_model_len),
        needed_kv_bytes=plan.needed_bytes(required_tokens, options.max_model_len),
        band_bytes=band_bytes(common.vendor, weights, activation, graphs, common.uncertainty),
        correction_bytes=common.correction_bytes,
    )


def _limiting(accounts: Sequence[MemoryAccount], plan: KvCachePlan) -> MemoryAccount:
    """The account of the stage that holds the fewest blocks, with all stages where there are
    several: the engine takes the fewest blocks of all ranks (vllm/v1/core/kv_cache_utils.py
    get_kv_cache_configs)."""
    if len(accounts) == 1:
        return accounts[0]
    of_stages = list(zip(accounts, plan.stages, strict=True))
    limiting, _ = min(of_stages, key=lambda each: each[0].kv_cache_bytes / each[1].block_bytes)
    stages = tuple(
        StageMemory(
            cache.layers,
            account.weights_bytes,
            account.kv_cache_bytes,
            account.kv_cache_tokens,
            account.lora_bytes,
        )
        for account, cache in of_stages
    )
    return replace(limiting, stages=stages)


def _shortage_in_budget(account: MemoryAccount) -> DoesNotFit | None:
    """The first term that does not fit in the rest of the budget."""
    terms = (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        (MemoryTerm.LORA, account.lora_bytes),
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
