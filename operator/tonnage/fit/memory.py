"""Does the model fit on these GPUs, with room for the tokens it has to hold?

The terms are those of vLLM (vllm/v1/worker/gpu_worker.py determine_available_memory):
total x utilization - weights - activation peak - non-torch memory - graphs = KV cache.
"""

import math

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.batch import plan_batch
from tonnage.fit.kv_cache import (
    kv_bytes_per_token,
    kv_cache_tokens,
    needed_kv_bytes,
    request_kv_bytes,
)
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.overheads import activation_bytes, graph_bytes, non_torch_bytes
from tonnage.fit.parallelism import check_parallelism
from tonnage.fit.weights import weights_per_gpu


def judge_fit(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    device_bytes: int,
    parallelism: Parallelism,
    options: EngineOptions,
    required_tokens: int,
    catalog: Catalog,
) -> FitVerdict:
    """Whether one replica fits on `parallelism.gpus` devices of `device_bytes` each.

    `device_bytes` is the memory of one device as torch reports it, `required_tokens` what the KV
    cache has to hold at once, at least `max_model_len`. Raises ValueError for a vLLM version that
    is none.
    """
    release = catalog.release(options.vllm_version)
    illegal = check_parallelism(checkpoint.shape, parallelism, options, release)
    if illegal is not None:
        return illegal
    budget = _budget_bytes(device_bytes, options, release)
    batch = plan_batch(options, parallelism, device_bytes, accelerator.id, release)
    shape, vendor = checkpoint.shape, accelerator.vendor
    weights = weights_per_gpu(checkpoint, parallelism, options, accelerator, release)
    activation = activation_bytes(shape, parallelism, batch, release)
    non_torch = non_torch_bytes(parallelism, vendor, release)
    graphs = graph_bytes(parallelism, options, vendor, release)
    kv_cache = budget - weights - activation - non_torch - graphs
    account = MemoryAccount(
        device_bytes=device_bytes,
        budget_bytes=budget,
        weights_bytes=weights,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        graph_bytes=graphs,
        kv_cache_bytes=kv_cache,
        request_kv_bytes=request_kv_bytes(
            shape, parallelism, options, batch, options.max_model_len
        ),
        kv_bytes_per_token=kv_bytes_per_token(shape, parallelism, options),
        kv_cache_tokens=kv_cache_tokens(shape, parallelism, options, batch, max(0, kv_cache)),
    )
    needed_kv = needed_kv_bytes(shape, parallelism, options, batch, required_tokens)
    return _first_lacking(account, needed_kv) or MemoryFit(account, required_tokens)


def _budget_bytes(device_bytes: int, options: EngineOptions, release: EngineRelease) -> int:
    """What vLLM may use of a device (vllm/v1/worker/utils.py request_memory)."""
    utilization = options.gpu_memory_utilization or release.gpu_memory_utilization
    return math.ceil(device_bytes * utilization)


def _first_lacking(account: MemoryAccount, needed_kv: int) -> DoesNotFit | None:
    """The first term for which nothing or too little of the budget is left."""
    left = account.budget_bytes
    for term, needed in (
        (MemoryTerm.WEIGHTS, account.weights_bytes),
        (MemoryTerm.ACTIVATION, account.activation_bytes),
        (MemoryTerm.NON_TORCH, account.non_torch_bytes),
        (MemoryTerm.GRAPHS, account.graph_bytes),
        (MemoryTerm.KV_CACHE, needed_kv),
    ):
        if needed > left:
            return DoesNotFit(term, needed, left, account)
        left -= needed
    return None
