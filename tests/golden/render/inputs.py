"""Inputs of render tests: an option of the kind placement makes, from a few words."""

from decimal import Decimal
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import parse_model, parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.catalog.load import load_catalog
from tonnage.catalog.rules import Settings
from tonnage.checkpoint.model import (
    Attention,
    Checkpoint,
    DecoderLayer,
    DType,
    Mlp,
    ModelShape,
)
from tonnage.engines.inputs import Owner, RenderSettings, SurgeMode
from tonnage.fit.model import MemoryAccount, MemoryFit, Parallelism
from tonnage.fleet.dra.requests import request_of
from tonnage.fleet.model import Pool
from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.pools.network import network_of
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.model import Option
from tonnage.placement.pricing import PriceSource
from tonnage.workloads.registry import render_workload

GIB = 2**30
OWNER = Owner("chat", "llama-70b", "8c0f3b9e-5a53-4f0e-9c5b-0d6d2f7f3a10")
WEIGHTS_70B_BYTES = 141_107_412_992

ALIGNED = {"gpu.amd.com/numaNode": 4, "resource.kubernetes.io/numaNode": 4}
"""GPUs of one NUMA node."""

LLAMA_70B = ModelShape(
    architecture="LlamaForCausalLM",
    model_type="llama",
    dtype=DType.BFLOAT16,
    hidden_size=8192,
    vocab_size=128256,
    tie_word_embeddings=False,
    max_position_embeddings=131072,
    layer_kinds=(DecoderLayer((Attention(64, 8, 128, 128),), (Mlp(28672),), 2 * 8192),),
    layer_order=(0,) * 80,
)

SELECTORS = {
    "mi300x": {"amd.com/gpu.device-id": ("74a1",)},
    "mi355x": {"amd.com/gpu.device-id": ("75a3",)},
    "mi210": {"amd.com/gpu.device-id": ("740f",)},
    "h100-sxm-80gb": {"nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3",)},
    "gb200-192gb": {"nvidia.com/gpu.product": ("NVIDIA-GB200",)},
}


def make_spec(**fields: Any) -> InferenceDeploymentSpec:
    """A spec as the API server stores it; a 70B model from the Hub unless said otherwise."""
    raw: dict[str, Any] = {
        "model": {"source": {"huggingFace": {"repo": "meta-llama/Llama-3.3-70B-Instruct"}}},
        "workload": {"maxModelLen": 32768},
    }
    return parse_spec({**raw, **fields})


def make_checkpoint(weights_bytes: int | None = WEIGHTS_70B_BYTES) -> Checkpoint:
    """Llama 70B, of whatever size on disk."""
    return Checkpoint(LLAMA_70B, weights_bytes)


def make_option(
    accelerator: str = "mi300x",
    *,
    tensor: int = 1,
    pipeline: int = 1,
    data: int = 1,
    nodes: int = 1,
    pool: str | None = None,
    declared: dict[str, Any] | None = None,
    node_selector: dict[str, tuple[str, ...]] | None = None,
    cost_per_hour: str = "1.99",
    rules: Settings | None = None,
    adjustments: EngineAdjustments = UNADJUSTED,
    driver: str | None = None,
) -> Option:
    """A pool with free nodes of that accelerator for a replica, and a split that fits; with a
    `driver`, its GPUs are in ResourceSlices."""
    device = load_catalog().accelerator(accelerator)
    parallelism = Parallelism(tensor, pipeline, data, nodes)
    free = device.gpus_per_node or 1
    drivers = load_dra_drivers()
    resource = drivers.resource_of(drivers.by_name[driver]) if driver else device.resource
    pool_spec = parse_model(AcceleratorPoolSpec, declared, "spec") if declared else None
    return Option(
        pool=Pool(
            name=pool or f"{device.vendor}-{accelerator}",
            accelerator=device,
            device_bytes=device.memory_bytes,
            resource=resource,
            nodes=PoolNodes.of(
                PoolNode(f"node-{number}", free, free, free, None) for number in range(nodes)
            ),
            node_selector=node_selector or SELECTORS[accelerator],
            taints=(),
            declared=pool_spec,
            network=network_of(pool_spec, {}),
            claim=request_of(resource, device, pool_spec, ALIGNED, virtual_function=False),
        ),
        parallelism=parallelism,
        fit=_make_fit(device.memory_bytes or 0, parallelism),
        replicas=2,
        capacity=2,
        grown_capacity=2,
        cost_per_hour=Decimal(cost_per_hour),
        price_source=PriceSource("Pool", "test"),
        estimate=None,
        settings=rules or Settings(),
        adjustments=adjustments,
    )


def make_deployment(
    spec: InferenceDeploymentSpec | None = None,
    option: Option | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    replicas: int = 2,
    surge: SurgeMode = SurgeMode.SURGE,
    placement_digest: str = "4f6a",
    settings: RenderSettings | None = None,
    owner: Owner = OWNER,
) -> dict[str, Any]:
    """The workload of a 70B model on one MI300X, but for what is said."""
    return render_workload(
        owner,
        spec or make_spec(),
        checkpoint or make_checkpoint(),
        option or make_option(),
        replicas=replicas,
        surge=surge,
        placement_digest=placement_digest,
        catalog=load_catalog(),
        settings=settings or RenderSettings(),
    )


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """The spec of its pods."""
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """The container that runs vLLM."""
    container, *_ = pod_of(deployment)["containers"]
    assert isinstance(container, dict)
    return container


def _make_fit(device_bytes: int, parallelism: Parallelism) -> MemoryFit:
    account = MemoryAccount(
        device_bytes=device_bytes,
        budget_bytes=device_bytes * 92 // 100,
        weights_bytes=WEIGHTS_70B_BYTES // parallelism.gpus,
        activation_bytes=5 * GIB,
        non_torch_bytes=GIB,
        graph_bytes=2 * GIB,
        kv_cache_bytes=36 * GIB,
        request_kv_bytes=10 * GIB // parallelism.tensor,
        kv_bytes_per_token=327_680 // parallelism.tensor,
        kv_cache_tokens=118_000,
    )
    return MemoryFit(account, required_tokens=64_000)
