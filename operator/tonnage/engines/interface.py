"""What the operator asks of a kind of inference engine, the server in a replica's pods.

A kind is registered in `engines.registry`. What all of them have in common (model source, caches,
adapters' files, probes, grace periods) is in the modules next to this one, which call the kind for
the rest. Every engine serves on the port of the catalogue's pod_defaults.yaml, so that Services do
not depend on the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.metrics import CacheMetric, LoadMetrics
from tonnage.engines.replica import Replica
from tonnage.engines.startup_log import StartupLog
from tonnage.fit.model import Parallelism


@dataclass(frozen=True, slots=True)
class Image:
    """An image by name and tag; `command` is empty where the entrypoint starts the server.

    `oldest_driver` is the oldest branch of NVIDIA's driver that runs it, None where that is not
    known.
    """

    name: str
    command: tuple[str, ...] = ()
    oldest_driver: int | None = None


@dataclass(frozen=True, slots=True)
class ProbePaths:
    """Paths of the server that answer 200: once it has started, while it takes requests, and as
    long as it lives."""

    startup: str
    readiness: str
    liveness: str


@dataclass(frozen=True, slots=True)
class AdapterPaths:
    """Paths of the server that load and unload a LoRA adapter while it runs."""

    load: str
    unload: str


class EngineKind(Protocol):
    """A kind of inference engine."""

    @property
    def name(self) -> str:
        """Its field in spec.engine, which is the name of its container as well."""
        ...

    @property
    def title(self) -> str:
        """Its name in messages."""
        ...

    @property
    def command(self) -> tuple[str, ...]:
        """Starts the server in an image with any entrypoint."""
        ...

    @property
    def probe_paths(self) -> ProbePaths:
        """What the kubelet asks."""
        ...

    @property
    def adapter_paths(self) -> AdapterPaths:
        """What changes the adapters of a server that runs; their list is that of its models."""
        ...

    @property
    def address_variable(self) -> str:
        """The environment variable with the address at which the pods of one replica on several
        nodes listen for each other."""
        ...

    @property
    def download_flags(self) -> frozenset[str]:
        """Arguments that change where the server downloads weights to."""
        ...

    @property
    def load_metrics(self) -> LoadMetrics:
        """The metrics with its load."""
        ...

    @property
    def cache_metric(self) -> CacheMetric:
        """The metric with the size of its KV cache."""
        ...

    @property
    def startup_log(self) -> StartupLog:
        """How to read why a start failed."""
        ...

    def release(self, version: str | None, catalog: Catalog) -> str:
        """The release that the operator plans with for this version of a spec, None for the
        default."""
        ...

    def keep_release(self, version: str | None, catalog: Catalog) -> Catalog:
        """The catalogue by which replicas are planned that keep this release, None for those that
        keep none."""
        ...

    def check(self, spec: InferenceDeploymentSpec) -> None:
        """Refuse settings that clash with those that the operator renders. Raises RenderError."""
        ...

    def choose_vendor_image(self, replica: Replica) -> Image:
        """The image of the replica's release for its accelerator."""
        ...

    def render_arguments(self, replica: Replica) -> list[str]:
        """The arguments of the server, the user's last."""
        ...

    def read_parallelism(self, arguments: Sequence[str]) -> Parallelism:
        """The parallelism that such arguments state; of missing and of invalid ones, 1."""
        ...

    def render_worker_arguments(self, arguments: Sequence[str]) -> list[str]:
        """The arguments of the pods of a replica's further nodes, from those of the first one."""
        ...

    def render_variables(self, replica: Replica) -> Mapping[str, str]:
        """Environment variables that the server needs in addition to those of the catalogue, by
        name."""
        ...

    def render_lifecycle(self, replica: Replica) -> dict[str, Any]:
        """The hooks of the container, which keep SIGTERM from it while endpoints drop the pod."""
        ...

    def extra_memory_gib(self, replica: Replica) -> int:
        """Memory of a pod's node that its settings need in addition to the formula of the
        catalogue: for LoRA adapters, and for buffers while weights are loaded, in whole GiB."""
        ...
