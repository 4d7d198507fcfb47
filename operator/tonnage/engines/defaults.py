"""Default values of rendered objects, with their sources, from the catalogue's
pod_defaults.yaml."""

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from tonnage.api.pod import Toleration
from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import Vendor
from tonnage.engines.medium import Medium

Seconds = Annotated[int, Field(ge=0, le=86_400)]
PositiveInt = Annotated[int, Field(ge=1)]


class Sourced(Entry):
    """A part of the file with the source of its values and the date at which they were read."""

    source: str
    date: str


class Server(Sourced):
    """Port, health check and shutdown of the server."""

    port: PositiveInt
    health_path: str
    shutdown_timeout_seconds: Seconds
    pre_stop_seconds: Seconds
    drain_poll_seconds: Seconds


class FirstReleases(Sourced):
    """The first vLLM releases whose images have a feature."""

    serve_entrypoint: str


class GpuRelease(Sourced):
    """Seconds that the engine needs to free the GPUs after the drain, by vendor."""

    seconds: dict[Vendor, Seconds]


class Startup(Sourced):
    """How long a start may take, by the size of the model and where it is read from."""

    load_bytes_per_second: dict[Medium, PositiveInt]
    pull_bytes_per_second: PositiveInt
    warm_up_seconds: Seconds
    slowness: Annotated[float, Field(ge=1)]
    floor_seconds: Seconds
    kubelet_margin_seconds: Seconds
    image_pull_seconds: Seconds


class ProbePeriod(Entry):
    """Interval and timeout of a probe."""

    period_seconds: PositiveInt
    timeout_seconds: PositiveInt


class Probe(ProbePeriod):
    """A probe, and the failures in a row after which the kubelet acts."""

    failure_threshold: PositiveInt


class Probes(Sourced):
    """The three probes; the model's size decides the failure threshold of the startup probe."""

    startup: ProbePeriod
    readiness: Probe
    liveness: Probe


class Resources(Sourced):
    """CPU and memory of one replica, by its GPUs and the size of the model."""

    base_cpu: PositiveInt
    cpu_per_gpu: PositiveInt
    base_memory_gib: PositiveInt
    memory_per_gpu_gib: PositiveInt
    memory_share_of_weights: Annotated[float, Field(ge=0, le=1)]


class Disk(Sourced):
    """Disk of the node for the caches and the downloaded weights of one replica."""

    base_gib: PositiveInt
    step_gib: PositiveInt
    limit_factor: PositiveInt


class AdapterDownload(Sourced):
    """Requests of the init containers that download LoRA adapters."""

    requests: dict[str, str]


class WeightsDownload(Sourced):
    """The Job that downloads a checkpoint to a claim."""

    requests: dict[str, str]
    base_seconds: Seconds
    least_bytes_per_second: PositiveInt
    attempts_after_first: PositiveInt
    ttl_seconds: Seconds
    environment: dict[str, str]


class WeightsKeeper(Sourced):
    """The container that keeps a checkpoint on the disk of a node."""

    requests: dict[str, str]
    period_seconds: PositiveInt
    group_pause_seconds: PositiveInt


class SharedMemorySize(Entry):
    """Size of /dev/shm by the GPUs of a replica."""

    floor_gib: PositiveInt
    per_gpu_gib: PositiveInt


class SharedMemory(Sourced):
    """Size of /dev/shm by vendor."""

    sizes: dict[Vendor, SharedMemorySize]


class Cache(Sourced):
    """The volume for caches on disk, and the variables that point into it."""

    path: str
    folders: dict[str, str]
    user: str


class Environment(Sourced):
    """Environment variables of every pod, and of pods on an accelerator architecture."""

    every: dict[str, str]
    architectures: dict[str, dict[str, str]]


class EngineVariables(Sourced):
    """Environment variables that only one engine reads, by name, with the name of the engine."""

    engines: dict[str, str]


class RunAs(Entry):
    """The user and groups of a vendor's pods; None leaves the choice to the image."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int
    supplemental_groups: tuple[int, ...] = ()


class Security(Sourced):
    """The user and groups that the server runs as, by vendor."""

    run_as: dict[Vendor, RunAs]


class EngineSecurity(Sourced):
    """The same by engine, for those with other images."""

    engines: dict[str, dict[Vendor, RunAs]]


class PodSecurity(Sourced):
    """What the Pod Security Standard "baseline" allows."""

    capabilities: frozenset[str]
    selinux_types: frozenset[str]
    sysctls: frozenset[str]


class SeveralNodes(Sourced):
    """Settings of the pods of a replica on several nodes: variables, and for how many seconds they
    stay on a node that does not answer."""

    environment: dict[str, str]
    silent_node_seconds: PositiveInt


class GpuNodeTolerations(Sourced):
    """Tolerations of the taints that GPU nodes have by convention."""

    tolerations: list[Toleration]


class ReservedVariables(Sourced):
    """Environment variables that select the GPUs of a node for a container."""

    names: frozenset[str]


class Defaults(Entry):
    """The whole file."""

    server: Server
    since: FirstReleases
    release: GpuRelease
    startup: Startup
    probes: Probes
    resources: Resources
    disk: Disk
    model_size_step_gib: PositiveInt
    shared_memory: SharedMemory
    cache: Cache
    model_volume_path: str
    adapter_volume_path: str
    compile_cache_path: str
    adapter_download: AdapterDownload
    weights_download: WeightsDownload
    weights_keeper: WeightsKeeper
    environment: Environment
    engine_variables: EngineVariables
    security: Security
    engine_security: EngineSecurity
    pod_security: PodSecurity
    several_nodes: SeveralNodes
    gpu_node_tolerations: GpuNodeTolerations
    reserved_variables: ReservedVariables


@lru_cache(maxsize=1)
def load_defaults() -> Defaults:
    """Read the file once. A pydantic.ValidationError is a bug of the package."""
    return Defaults.model_validate(read_data_file("pod_defaults.yaml"))
