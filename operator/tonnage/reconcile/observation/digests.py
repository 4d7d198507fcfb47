"""Digests of the inputs of a placement: while a digest stays the same, the replicas stay."""

from collections.abc import Iterator
from typing import Any, Final

from tonnage.api.inference import DEFAULT_ENGINE, InferenceDeploymentSpec
from tonnage.api.model import Adapter, AdapterSource, Lora
from tonnage.api.text import digest

_NO_MEMORY_SETTINGS: Final = {"image", "extra_args", "env"}
"""Settings of every engine that do not change where it fits."""

_NOT_RENDERED: Final[dict[str, Any]] = {
    "model": {"cache": {"node_disk": {"prefetch"}}},
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
    "engine": {"type"},
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
        "data_parallel",
    },
    "rollout": {"strategy", "restarted_at", "progress_deadline", "max_unavailable", "paused"},
}
"""Fields of the spec that are not rendered into pods; a restart leaves what was rendered. A field
that is not listed counts as rendered, so that a change of it is never ignored."""

_ALL_RENDERED: Final = frozenset({"lora"})
"""Parts of the spec that are rendered into pods even where all of their fields are defaults."""

_DEMAND: Final[dict[str, Any]] = {"replicas": True, "scaling": True, "workload": True}
"""Fields of the spec that determine the number of replicas and the load of each."""


def pod_spec_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the part of the spec that is rendered into pods."""
    rendered = spec.model_dump(
        mode="json", by_alias=True, exclude=_NOT_RENDERED, exclude_defaults=True
    )
    if spec.lora is not None and spec.lora.is_live:
        # Pods mount the claims of their adapters, and load the adapters while they run. Without an
        # order: another one mounts the same.
        rendered["lora"].pop("adapters", None)
        rendered["lora"]["claims"] = sorted(spec.lora.claims)
    elif spec.lora is not None:
        _drop_idle_facts(spec.lora, rendered["lora"])
    # A part of which only excluded fields are set is left as an empty object.
    return digest(
        {name: value for name, value in rendered.items() if value != {} or name in _ALL_RENDERED}
    )


def demand_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the part of the spec that determines the number of replicas and their load."""
    return digest(
        spec.model_dump(mode="json", by_alias=True, include=_DEMAND, exclude_defaults=True)
    )


def placement_digest(spec: InferenceDeploymentSpec) -> str:
    """Digest of the inputs of a placement, as the operator writes it onto the Deployment."""
    return next(digests_of_choice(spec))


def digests_of_choice(spec: InferenceDeploymentSpec) -> Iterator[str]:
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
    engine, inputs = spec.engine, _inputs_but_engine(spec)
    listed = engine.settings.listed()
    if listed is not None:
        yield digest({**inputs, "engine": listed})
    settings = engine.settings.model_dump(
        mode="json", by_alias=True, exclude=_NO_MEMORY_SETTINGS, exclude_defaults=True
    )
    is_default = not settings and engine.name == DEFAULT_ENGINE
    yield digest({**inputs, "engine": {} if is_default else {engine.name: settings}})


def _adapter_inputs(lora: Lora | None) -> dict[str, object]:
    """What decides the buffers for adapters; nothing without any. Which adapters they are matters
    to the placement only where their files decide rank or layers of the buffers."""
    if lora is None:
        return {}
    largest = max((adapter.rank or 0 for adapter in lora.adapters), default=0)
    modules, sharded = sorted(set(lora.target_modules)), lora.fully_sharded
    inputs: dict[str, object] = {"lora": [lora.slots, lora.max_rank or largest, modules, sharded]}
    read = [
        source
        for adapter in (() if lora.is_live else lora.adapters)
        if _is_buffer_read(adapter, lora) and (source := _files_of(adapter.source)) is not None
    ]
    return inputs | {"adapters": read} if read else inputs


def _is_buffer_read(adapter: Adapter, lora: Lora) -> bool:
    """Whether the rank or the layers of the buffers follow from the files of the adapter."""
    return not lora.target_modules or (adapter.rank or lora.max_rank) is None


def _drop_idle_facts(lora: Lora, rendered: dict[str, Any]) -> None:
    """Drop the facts from which no argument follows: they only decide what is refused."""
    for adapter, entry in zip(lora.adapters, rendered.get("adapters", ()), strict=True):
        if not _is_buffer_read(adapter, lora):
            entry["source"].get("persistentVolumeClaim", {}).pop("facts", None)


def _files_of(source: AdapterSource) -> dict[str, object] | None:
    """Where the files of an adapter are from which something follows; None where none are read."""
    hub, volume = source.hugging_face, source.persistent_volume_claim
    if hub is not None:
        return hub.model_dump(mode="json", include={"repo", "revision"})
    return volume.to_dict() if volume is not None and volume.facts is not None else None


def _inputs_but_engine(spec: InferenceDeploymentSpec) -> dict[str, object]:
    return {
        "source": spec.model.source.to_dict(),
        "maxModelLen": spec.workload.max_model_len,
        "kvCacheDtype": spec.kv_cache_dtype,
        "quantization": spec.quantization,
        **_adapter_inputs(spec.lora),
        "placement": spec.placement.model_dump(
            mode="json", exclude={"fallback", "rebalance", "spread"}, exclude_defaults=True
        ),
    }
