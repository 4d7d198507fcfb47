"""An object whose checkpoint a Job downloads to a claim."""

import json
from typing import Any

from tests.support.in_memory.cluster import NAMESPACE, Cluster, spec_of
from tonnage.checkpoint.kept_facts import encode_facts
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.kube.kinds import ACCELERATOR_POOLS, JOBS
from tonnage.kube.protocol import Object

REPO, CLAIM = "acme/llama", "models"
COMMIT, NEWER = "c0ffee" + "0" * 34, "decade" + "0" * 34
SIZE_BYTES = 16 * 2**30


def cached_spec(revision: str = "main", **spec: Any) -> Object:
    """A spec of a repository whose files are kept on the claim."""
    model = {
        "source": {"huggingFace": {"repo": REPO, "revision": revision}},
        "cache": {"persistentVolumeClaim": {"claimName": CLAIM}},
    }
    return spec_of() | {"model": model} | spec


def read_from_hub(commit: str = COMMIT, revision: str = "main") -> Checkpoint:
    """What the Hub says of the model at a commit."""
    config = json.dumps(spec_of()["model"]["source"]["inline"]["config"]).encode()
    checkpoint = make_checkpoint(
        parse_config_text(config), weights_bytes=SIZE_BYTES, revision=commit
    )
    return checkpoint.with_kept_facts(encode_facts(REPO, revision, config, checkpoint))


def model_claim(size: str = "100Gi", phase: str = "Bound", **spec: Any) -> Object:
    """The claim as the API server has it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], **spec},
        "status": {"phase": phase, "capacity": {"storage": size}},
    }


def on_hub(*groups: dict[str, Any], claim: Object | None = None) -> Cluster:
    """A cluster with the claim, and a Hub that has the repository."""
    cluster = Cluster(*groups)
    cluster.administer(claim or model_claim())
    cluster.hub.answer = read_from_hub()
    return cluster


def prefetching_spec(count: int, **spec: Any) -> Object:
    """A spec of a repository whose files the nodes keep, and so many nodes without replicas."""
    prefetch = {"prefetch": {"nodes": count}} if count else {}
    applied = cached_spec(**spec)
    applied["model"]["cache"] = {"nodeDisk": prefetch}
    return applied


def with_disks(
    *groups: dict[str, Any], cluster: Cluster | None = None, costs: tuple[str, str] = ("1", "2")
) -> Cluster:
    """A cluster whose MI300X and H100 have disks for weights, at these prices, and a Hub that has
    the repository."""
    cluster = cluster or on_hub(*groups)
    selectors = {
        "chat": {"amd.com/gpu.device-id": "74a1"},
        "h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    }
    for (name, selector), cost in zip(selectors.items(), costs, strict=True):
        body = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "AcceleratorPool",
            "metadata": {"name": name, "uid": name, "generation": 1},
            "spec": {
                "nodeSelector": selector,
                "costPerGPUHour": cost,
                "weights": {"nodeDisk": {"capacity": "2Ti"}},
            },
        }
        cluster.api.put(ACCELERATOR_POOLS, body)
    return cluster


def jobs(cluster: Cluster) -> list[Object]:
    """All Jobs."""
    return list(cluster.api.objects(JOBS))
