"""The numbers that the world decides, from the catalogue's render.yaml."""

from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tonnage.api.pod import Toleration
from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.model import Vendor

Seconds = Annotated[int, Field(ge=0, le=86_400)]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the file; unknown keys are refused, so that a typo is found by the first test."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Sourced(Section):
    """A part of the file that says where its numbers come from and when they were read."""

    source: str
    date: str


class Server(Sourced):
    """How the server listens and ends."""

    port: Positive
    health_path: str
    shutdown_timeout_seconds: Seconds
    pre_stop_seconds: Seconds


class Since(Sourced):
    """The vLLM releases that brought what not every older one has."""

    serve_entrypoint: str
    shutdown_timeout: str


class Release(Sourced):
    """What the engine takes after the drain, by vendor."""

    seconds: dict[Vendor, Seconds]


class Startup(Sourced):
    """How long a start may take, by the size of the model."""

    load_bytes_per_second: Positive
    warm_up_seconds: Seconds
    slowness: Annotated[float, Field(ge=1)]
    floor_seconds: Seconds
    kubelet_margin_seconds: Seconds
    image_pull_seconds: Seconds


class ProbePeriod(Section):
    """How often the kubelet asks, and how long it waits for an answer."""

    period_seconds: Positive
    timeout_seconds: Positive


class Probe(ProbePeriod):
    """A probe that gives up after so many failures in a row."""

    failure_threshold: Positive


class Probes(Sourced):
    """The three probes; the startup probe's patience follows from the model's size."""

    startup: ProbePeriod
    readiness: Probe
    liveness: Probe


class Resources(Sourced):
    """CPU and memory of one replica, by its GPUs and the size of the model."""

    base_cpu: Positive
    cpu_per_gpu: Positive
    base_memory_gib: Positive
    memory_per_gpu_gib: Positive
    memory_share_of_weights: Annotated[float, Field(ge=0, le=1)]


class SharedMemorySize(Section):
    """Size of /dev/shm by the GPUs of a replica."""

    floor_gib: Positive
    per_gpu_gib: Positive


class SharedMemory(Sourced):
    """Size of /dev/shm by vendor."""

    sizes: dict[Vendor, SharedMemorySize]


class Cache(Sourced):
    """The volume for all that is kept on disk, and the variables that point into it."""

    path: str
    folders: dict[str, str]
    user: str


class Environment(Sourced):
    """Variables of every pod, and those of an accelerator's architecture."""

    every: dict[str, str]
    architectures: dict[str, dict[str, str]]


class RunAs(Section):
    """The user and groups of a vendor's pods; None leaves it to the image."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    fs_group: int
    supplemental_groups: list[int] = []


class Security(Sourced):
    """Who the server runs as, by vendor."""

    run_as: dict[Vendor, RunAs]


class GpuNodeTolerations(Sourced):
    """Tolerations of the taints that GPU nodes carry by convention."""

    tolerations: list[Toleration]


class ReservedArguments(Sourced):
    """Arguments that only Tonnage sets, and what to use instead."""

    flags: dict[str, str]


class ReservedVariables(Sourced):
    """Variables that decide which GPUs of a node a container gets."""

    names: frozenset[str]


class Defaults(Section):
    """The whole file."""

    server: Server
    since: Since
    release: Release
    startup: Startup
    probes: Probes
    resources: Resources
    model_size_step_gib: Positive
    shared_memory: SharedMemory
    cache: Cache
    model_volume_path: str
    environment: Environment
    security: Security
    gpu_node_tolerations: GpuNodeTolerations
    reserved_arguments: ReservedArguments
    reserved_variables: ReservedVariables


@lru_cache(maxsize=1)
def defaults() -> Defaults:
    """The file's content, read once. A pydantic.ValidationError is a mistake in the package."""
    return Defaults.model_validate(read_data_file("render.yaml"))
