"""Digests of the inputs of a placement: while a digest stays the same, the replicas stay."""

from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.text import digest

_NO_MEMORY_SETTINGS: Final = {"image", "extra_args", "env"}
"""Settings of vLLM that do not change where it fits."""

_LISTED_SETTINGS: Final = frozenset(
    {"version", "gpuMemoryUtilization", "maxNumSeqs", "maxNumBatchedTokens", "enforceEager"}
)
"""The settings in the list of version 0.1.0."""


_NOT_RENDERED: Final[dict[str, Any]] = {
    "replicas": True,
    "scaling": True,
    "approval": True,
    "approved_plan": True,
    "gateway": True,
    "workload": {
        "concurrency",
        "input_tokens",
        "output_tokens",
        "latency_targets",
        "long_context",
    },
    "placement": {
        "policy",
        "accelerators",
        "pool_selector",
        "fallback",
        "rebalance",
        "spread",
        "max_cost_per_hour",
        "tight_fit",
        "multi_node",
    },
    "rollout": {"strategy", "restarted_at", "progress_deadline", "max_unavailable", "paused"},
}
"""Fields of the spec that are not rendered into pods; a restart leaves what was rendered. A field
that is not listed counts as rendered, so that a change of it is never ignored."""

_DEMAND: Final[dict[str, Any]] = {"replicas": True, "scaling": True, "workload": True}
"""Fields of the spec that determine the number of replicas and the load of each."""


def pod_spec_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the part of the spec that is rendered into pods."""
    rendered = spec.model_dump(
        mode="json", by_alias=True, exclude=_NOT_RENDERED, exclude_defaults=True
    )
    # A part of which only excluded fields are set is left as an empty object.
    return digest({name: value for name, value in rendered.items() if value != {}})


def demand_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the part of the spec that determines the number of replicas and their load."""
    return digest(
        spec.model_dump(mode="json", by_alias=True, include=_DEMAND, exclude_defaults=True)
    )


def placement_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the inputs of a placement, as the operator writes it onto the Deployment."""
    return digests_of_choice(spec)[0]


def digests_of_choice(spec: InferenceDeploymentSpec) -> tuple[str, ...]:
    """Every accepted digest of the inputs of a placement: what decides the memory, and the user's
    placement policy. The operator writes the first one.

    The digest leaves out what may change while the pods stay (replicas, concurrency, typical
    lengths, extra arguments, template), when to migrate or to spread, and every default, so that a
    field of a later version moves no replica.

    Version 0.1.0 wrote the engine's settings as a list, and knows no other digest. Write its digest
    while a rollback to 0.1.0 is supported, since that version would otherwise place every object
    again; then write the mapping. Accept the list while an upgrade from a version that writes it is
    supported; then remove it.
    """
    vllm = spec.engine.vllm
    settings = vllm.model_dump(
        mode="json", by_alias=True, exclude=_NO_MEMORY_SETTINGS, exclude_defaults=True
    )
    mapped = _digest_inputs(spec, {"vllm": settings} if settings else {})
    if not settings.keys() <= _LISTED_SETTINGS:
        return (mapped,)
    listed = [
        vllm.version,
        vllm.gpu_memory_utilization,
        vllm.max_num_seqs,
        vllm.max_num_batched_tokens,
        vllm.enforce_eager,
    ]
    return (_digest_inputs(spec, listed), mapped)


def _digest_inputs(spec: InferenceDeploymentSpec, engine: object) -> str:
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
