"""Judges whether a model and the tokens it must hold fit on given GPUs under SGLang.

SGLang's own check is weaker: it starts with a pool that is smaller than the context, and cuts
requests off there (managers/tp_worker.py). Its terms are free memory x mem_fraction_static -
weights = KV cache; activations and graphs use the rest of the free memory.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.fit.calibration.uncertainty import remaining_uncertainty
from tonnage.fit.legality.parallelism import check_parallelism
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
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import Device, PoolSizes, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools_of_stages
from tonnage.fit.sglang.stages import check_stages, stage_sizes
from tonnage.fit.sglang.weights import sglang_weights

_MIB = 2**20


def judge_sglang_fit(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    device_bytes: int,
    parallelism: Parallelism,
    options: EngineOptions,
    required_tokens: int,
    catalog: Catalog,
    correction: MemoryCorrection | None = None,
) -> FitVerdict:
    """Whether one replica fits on `parallelism.gpus` devices of `device_bytes` each.

    Of several pipeline stages, the one that holds the fewest tokens decides.

    Legal tensor-parallel sizes, layouts of weights, and the memory outside torch are those of the
    vLLM release in `options`. The budget is the memory outside torch and the static fraction of the
    rest, less the `correction`. The uncertainty is that of weights and memory outside torch. A
    measured correction includes the weights; the rest stays, since SGLang divides what is free at
    each start.

    Raises NotCalculatedError for a model or a device whose memory is not calculated.
    """
    release, memory = catalog.release(options.release), load_sglang_memory()
    illegal = check_stages(checkpoint.shape, parallelism, options, memory) or check_parallelism(
        checkpoint.shape, parallelism, options, release
    )
    if illegal is not None:
        return illegal
    replica = replica_of(checkpoint.shape, accelerator, device_bytes, parallelism, options)
    weights = sglang_weights(checkpoint, parallelism, options, accelerator, release)
    outside = _outside_torch(parallelism, accelerator.vendor, release)
    static = int((device_bytes - outside) * static_fraction(replica, memory).fraction)
    extra = correction.extra_bytes if correction else 0
    left = [static - one - extra for one in weights]
    pools = size_pools_of_stages(replica, left, memory)
    uncertainty = release.uncertainty
    outside_band = uncertainty.non_torch_bytes[accelerator.vendor]
    weights_share = remaining_uncertainty(uncertainty, correction).weights_share
    accounts = [
        MemoryAccount(
            device_bytes=device_bytes,
            budget_bytes=outside + static,
            weights_bytes=of_weights,
            activation_bytes=0,
            non_torch_bytes=outside,
            graph_bytes=0,
            kv_cache_bytes=kv_cache,
            request_kv_bytes=bytes_of(pool, options.max_model_len),
            kv_bytes_per_token=math.ceil(pool.bytes_per_token),
            kv_cache_tokens=pool.tokens,
            needed_kv_bytes=bytes_of(pool, required_tokens),
            band_bytes=int(math.hypot(of_weights * weights_share, outside_band)),
            correction_bytes=extra,
        )
        for of_weights, kv_cache, pool in zip(weights, left, pools, strict=True)
    ]
    return _judge_account(_limiting(accounts, replica), required_tokens)


def _judge_account(account: MemoryAccount, required_tokens: int) -> FitVerdict:
    """The first term that does not fit in the memory for weights and KV cache."""
    static = account.budget_bytes - account.non_torch_bytes
    extra = account.correction_bytes
    if account.weights_bytes > static:
        return DoesNotFit(MemoryTerm.WEIGHTS, account.weights_bytes, static, account)
    if account.weights_bytes + extra > static:
        remaining = static - account.weights_bytes
        return DoesNotFit(MemoryTerm.CORRECTION, extra, remaining, account)
    if account.margin_bytes < 0:
        needed, kv_cache = account.needed_kv_bytes, account.kv_cache_bytes
        return DoesNotFit(MemoryTerm.KV_CACHE, needed, kv_cache, account)
    return MemoryFit(account, required_tokens, tight=account.margin_bytes < account.band_bytes)


def _limiting(accounts: Sequence[MemoryAccount], replica: Replica) -> MemoryAccount:
    """The account of the stage that holds the fewest tokens, with all stages where there are
    several. SGLang takes the fewest tokens of all ranks."""
    if len(accounts) == 1:
        return accounts[0]
    layers = stage_sizes(replica.shape.layers, len(accounts))
    stages = tuple(
        StageMemory(size, one.weights_bytes, one.kv_cache_bytes, one.kv_cache_tokens)
        for size, one in zip(layers, accounts, strict=True)
    )
    return replace(accounts[limiting_stage(stages)], stages=stages)


def limiting_stage(stages: Sequence[StageMemory]) -> int:
    """The index of the stage that holds the fewest tokens."""
    amounts = [(stage.kv_cache_tokens, stage.kv_cache_bytes) for stage in stages]
    return amounts.index(min(amounts))


def replica_of(
    shape: ModelShape,
    accelerator: Accelerator,
    device_bytes: int,
    parallelism: Parallelism,
    options: EngineOptions,
) -> Replica:
    """The replica with those arguments of SGLang that vLLM has by other names.

    A driver reports a little more than torch; of a device with other memory than the catalogue's it
    reports so much more, and where the catalogue has no figure what torch reports.
    """
    reported, usual = accelerator.driver_mib, accelerator.memory_bytes
    if reported is None or usual is None:
        reported, usual = device_bytes // _MIB, device_bytes
    server = ServerOptions(
        context_length=options.max_model_len,
        tensor_parallel_size=parallelism.tensor,
        pipeline_parallel_size=parallelism.pipeline,
        mem_fraction_static=options.gpu_memory_utilization,
        chunked_prefill_size=options.max_num_batched_tokens,
        max_running_requests=options.max_num_seqs,
        kv_cache_dtype=options.kv_cache_dtype,
    )
    return Replica(shape, server, Device(accelerator.arch, reported * device_bytes // usual))


def cuts_off(shortage: DoesNotFit) -> bool:
    """Whether SGLang starts nevertheless, with a pool that is too small."""
    return shortage.term is MemoryTerm.KV_CACHE and shortage.account.kv_cache_tokens > 0


def _outside_torch(parallelism: Parallelism, vendor: Vendor, release: EngineRelease) -> int:
    """Bytes that the process and its communication take before the weights."""
    context = 0 if release.charges_context else release.libraries.context_bytes[vendor]
    return non_torch_bytes(parallelism, vendor, release) + context


def bytes_of(pools: PoolSizes, tokens: int) -> int:
    """Bytes of the pages that hold so many tokens."""
    pages = math.ceil(tokens / pools.page_tokens)
    return math.ceil(pages * pools.page_tokens * pools.bytes_per_token)
