"""Brings LoRA adapters into the pod: init containers that download them, and volumes with them."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import HuggingFaceSource
from tonnage.engines.adapters import adapter_claims, adapter_path, claim_path
from tonnage.engines.defaults import load_defaults
from tonnage.engines.environment import render_hub_environment
from tonnage.engines.interface import EngineKind, Image
from tonnage.engines.replica import Replica
from tonnage.workloads.pod.security import render_container_security_context

Json = dict[str, Any]

ADAPTER_VOLUME: Final = "adapters-"
"""Prefix of the names of volumes with adapters; a number follows."""

_DOWNLOAD: Final = (
    "import sys; from huggingface_hub import snapshot_download; "
    "snapshot_download(sys.argv[1], revision=sys.argv[2], local_dir=sys.argv[3],"
    ' allow_patterns=["adapter_*"])'
)
"""huggingface_hub is in the images of all engines; its command line had another name once."""


def render_adapter_downloads(
    engine: EngineKind, replica: Replica, image: Image, cache: Mapping[str, Any]
) -> list[Json]:
    """An init container for each adapter of a repository; `cache` is the mount of the volume that
    they write to.

    No engine has a setting for the revision of an adapter, so the files are there before it starts.
    """
    return [
        {
            **download,
            "image": image.name,
            "command": ["python3", "-c", _DOWNLOAD],
            "args": [source.repo, source.revision.replace("$(", "$$("), folder],
            "env": render_hub_environment(engine, replica, source),
            "volumeMounts": [dict(cache)],
            "securityContext": render_container_security_context(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        for (source, folder), download in zip(
            _repositories(replica.spec), download_resources(replica.spec), strict=True
        )
    ]


def download_resources(spec: InferenceDeploymentSpec) -> list[Json]:
    """Name and resources of these containers."""
    requests = load_defaults().adapter_download.requests
    return [
        {"name": f"adapter-{index}", "resources": {"requests": dict(requests)}}
        for index, _ in enumerate(_repositories(spec))
    ]


def _repositories(spec: InferenceDeploymentSpec) -> list[tuple[HuggingFaceSource, str]]:
    """The repositories of adapters that are downloaded before vLLM starts, each with the folder
    that it is downloaded to."""
    return [
        (adapter.source.hugging_face, adapter_path(adapter, spec))
        for adapter in (spec.lora.adapters if spec.lora and not spec.lora.is_live else ())
        if adapter.source.hugging_face
    ]


def render_adapter_volumes(replica: Replica) -> list[Json]:
    """The volumes of claims with adapters, read-only."""
    return [
        {
            "name": f"{ADAPTER_VOLUME}{index}",
            "persistentVolumeClaim": {"claimName": claim, "readOnly": True},
        }
        for index, claim in enumerate(adapter_claims(replica.spec))
    ]


def render_adapter_mounts(replica: Replica) -> list[Json]:
    """The mounts of these volumes in the engine's container."""
    return [
        {
            "name": f"{ADAPTER_VOLUME}{index}",
            "mountPath": claim_path(claim, replica.spec),
            "readOnly": True,
        }
        for index, claim in enumerate(adapter_claims(replica.spec))
    ]
