"""What a place is chosen for, as digests: as long as these stay, the replicas stay."""

from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.reconcile.actions import digest

_NO_MEMORY_SETTINGS: Final = {"image", "extra_args", "env"}
"""Settings of vLLM that decide nothing of where it fits."""

_LISTED_SETTINGS: Final = frozenset(
    {"version", "gpuMemoryUtilization", "maxNumSeqs", "maxNumBatchedTokens", "enforceEager"}
)
"""Those that the list of version 0.1.0 has."""


def placed_for(spec: InferenceDeploymentSpec) -> str:
    """Digest of what a place is chosen for, as it is written onto the Deployment."""
    return digests_of_choice(spec)[0]


def digests_of_choice(spec: InferenceDeploymentSpec) -> tuple[str, ...]:
    """Every digest that stands for what a place is chosen for: what memory needs, and the user's
    say in the choice. The one that is written comes first.

    Not in it: what may change while the pods stay where they are (replicas, concurrency, typical
    lengths, further arguments, template), when to move or to spread, and what is as it is by
    default, so that a field that comes with a later version moves nobody.

    Version 0.1.0 wrote the engine's settings as a list, and knows no other digest. Its digest is
    written as long as a rollback to 0.1.0 is supported, since that version would otherwise choose
    every place anew; then write the mapping. Accept the list as long as an upgrade from a version
    that writes it is supported; then remove it.
    """
    vllm = spec.engine.vllm
    settings = vllm.model_dump(
        mode="json", by_alias=True, exclude=_NO_MEMORY_SETTINGS, exclude_defaults=True
    )
    mapped = _digest_choice(spec, {"vllm": settings} if settings else {})
    if not settings.keys() <= _LISTED_SETTINGS:
        return (mapped,)
    listed = [
        vllm.version,
        vllm.gpu_memory_utilization,
        vllm.max_num_seqs,
        vllm.max_num_batched_tokens,
        vllm.enforce_eager,
    ]
    return (_digest_choice(spec, listed), mapped)


def _digest_choice(spec: InferenceDeploymentSpec, engine: object) -> str:
    return digest(
        {
            "source": spec.model.source.to_dict(),
            "maxModelLen": spec.workload.max_model_len,
            "kvCacheDtype": spec.kv_cache_dtype,
            "quantization": spec.quantization,
            "engine": engine,
            "placement": spec.placement.model_dump(
                mode="json", exclude={"fallback", "rebalance", "spread"}, exclude_defaults=True
            ),
        }
    )
