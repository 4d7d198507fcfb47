"""Renders what downloads a checkpoint to a volume: the environment of the program, and the
container that keeps checkpoints on the disk of a node."""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import WEIGHTS_CONTAINER
from tonnage.engines.defaults import load_defaults
from tonnage.engines.environment import render_hub_environment
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.interface import Image
from tonnage.engines.lifetime import download_seconds
from tonnage.engines.model_source import cached_path
from tonnage.engines.registry import engine_for
from tonnage.engines.replica import Replica
from tonnage.fleet.nodes.amounts import read_capacity
from tonnage.workloads.pod.certificates import certificates_of
from tonnage.workloads.pod.patches import PodPatch
from tonnage.workloads.pod.pod_security import CONTAINER_LISTS
from tonnage.workloads.pod.security import render_container_security_context
from tonnage.workloads.pod.volumes import MODEL_VOLUME

Json = dict[str, Any]

SCRATCH_PATH: Final = "/tmp"  # noqa: S108 - a directory of the container or of its pod
_READY: Final = f"{SCRATCH_PATH}/ready"

_IMPORT: Final = re.compile(
    r"^from tonnage\.checkpoint\.hub\.pod_program import .*\n", re.MULTILINE
)

_HUB_PREFIX: Final = "HF_"
_NETWORK_VARIABLES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
_PLACES: Final = frozenset({"HF_HOME", "HF_HUB_CACHE", "HF_ASSETS_CACHE", "HF_XET_CACHE"})


def render_download_environment(
    replica: Replica, others: Mapping[str, str] | None = None
) -> list[Json]:
    """The environment of the program that downloads the checkpoint of the replica, with `others`:
    the Hub and the proxies of the engine, but not its caches."""
    hub, commit = replica.spec.model.source.hugging_face, replica.checkpoint.revision
    assert hub is not None, "a cache without a repository passed validation"
    own = {
        "HOME": SCRATCH_PATH,
        "HF_HOME": f"{SCRATCH_PATH}/huggingface",
        # NVIDIA's container toolkit gives a container all GPUs of the node where its image asks for
        # them and the pod does not say otherwise.
        "NVIDIA_VISIBLE_DEVICES": "void",
        "REPO": hub.repo,
        "COMMIT": commit or "",
        "FOLDER": cached_path(hub.repo, commit or ""),
        "TERMINATION_LOG": "/dev/termination-log",
        **(others or {}),
        **load_defaults().weights_download.environment,
    }
    variables = render_hub_environment(engine_for(replica.spec), replica, hub)
    taken = [variable for variable in variables if _is_for_download(variable)]
    named = {variable["name"] for variable in taken}
    return [
        *({"name": name, "value": value} for name, value in own.items() if name not in named),
        *taken,
    ]


def _is_for_download(variable: Mapping[str, Any]) -> bool:
    name = variable["name"]
    is_network = name.upper() in _NETWORK_VARIABLES
    return is_network or (name.startswith(_HUB_PREFIX) and name not in _PLACES)


@lru_cache(maxsize=3)
def program(name: str) -> str:
    """The source of a program that pods run: download, node_disk or prefetch. It needs no package
    of Tonnage: what it imports is in place of the import."""
    return _IMPORT.sub(lambda _: _read_source("pod_program"), _read_source(name))


def _read_source(name: str) -> str:
    package = resources.files("tonnage.checkpoint.hub")
    return package.joinpath(f"{name}.py").read_text("utf-8")


def render_keeper(replica: Replica, image: Image) -> list[Json]:
    """The container that brings the checkpoint to the disk of the node before the engine starts,
    and holds it there until the pod ends; none for other models.

    It is root, which owns what the kubelet creates on a node, and what the engine only reads.
    """
    if not replica.spec.model.is_on_node_disk:
        return []
    keeper = load_defaults().weights_keeper
    # The kubelet pauses before it starts a container again. LeaderWorkerSet does not before it
    # makes a group again.
    pause = keeper.group_pause_seconds if replica.option.parallelism.nodes > 1 else 0
    environment = disk_environment(replica) | {"READY": _READY, "PAUSE": str(pause)}
    return [
        {
            **keeper_resources(replica.spec)[0],
            "image": image.name,
            "command": ["python3", "-c", program("node_disk"), program("download")],
            "env": render_download_environment(replica, environment),
            "volumeMounts": [
                {"name": MODEL_VOLUME, "mountPath": load_defaults().model_volume_path}
            ],
            "startupProbe": {
                "exec": {"command": ["test", "-e", _READY]},
                "periodSeconds": keeper.period_seconds,
                "failureThreshold": math.ceil(
                    download_seconds(replica.weights_bytes) / keeper.period_seconds
                ),
            },
            "securityContext": {
                **render_container_security_context(),
                "runAsUser": 0,
                "runAsNonRoot": False,
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


def with_certificates(pod: Json, server: Json) -> Json:
    """The pod, whose container that downloads trusts the certificate authorities that the server
    trusts."""
    containers = pod.get("initContainers") or []
    keeper = next((one for one in containers if one.get("name") == WEIGHTS_CONTAINER), None)
    if keeper is None:
        return pod
    own_paths = (load_defaults().model_volume_path, SCRATCH_PATH)
    certificates = certificates_of(pod, server, own_paths)
    trusting = {
        **keeper,
        "env": [*keeper["env"], *certificates.variables],
        "volumeMounts": [*keeper["volumeMounts"], *certificates.mounts],
    }
    changed = [trusting if one is keeper else one for one in containers]
    volumes = [*pod["volumes"], *certificates.volumes]
    return {**pod, "initContainers": changed, "volumes": volumes}


def keeper_resources(spec: InferenceDeploymentSpec) -> list[Json]:
    """Name, restart policy and resources of this container."""
    if not spec.model.is_on_node_disk:
        return []
    requests = dict(load_defaults().weights_keeper.requests)
    return [
        {"name": WEIGHTS_CONTAINER, "restartPolicy": "Always", "resources": {"requests": requests}}
    ]


def disk_environment(replica: Replica) -> dict[str, str]:
    """What the programs know of the disk of a node, besides the variables of the download."""
    disk = replica.option.pool.node_disk
    assert disk is not None, f"placement chose pool {replica.option.pool.name}, which keeps none"
    return {
        "ROOT": load_defaults().model_volume_path,
        "SIZE": str(replica.weights_bytes),
        "CAPACITY": str(read_capacity(disk)),
        "TTL": str(disk.ttl_seconds_after_last_use),
    }


def check_keeper(spec: InferenceDeploymentSpec, patch: PodPatch) -> None:
    """Refuse what a patch does to the container that keeps the checkpoint, and containers that
    could write to the disk of the node. Raises PodTemplateError."""
    if not spec.model.is_on_node_disk:
        return
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(patch.containers(kind)):
            path = f"{patch.source}.spec.{kind}[{index}]"
            if container.get("name") == WEIGHTS_CONTAINER:
                hint = "it is the container for spec.model.cache.nodeDisk; use another name"
                raise PodTemplateError(f"{path}.name", repr(WEIGHTS_CONTAINER), hint)
            for position, mount in enumerate(container.get("volumeMounts") or []):
                if mount.get("name") == MODEL_VOLUME and mount.get("readOnly") is not True:
                    where = f"{path}.volumeMounts[{position}].readOnly"
                    hint = "the model is on the disk of the node; set it to true"
                    raise PodTemplateError(where, repr(mount.get("readOnly")), hint)
