"""vLLM as a kind of engine."""

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.defaults import load_defaults
from tonnage.engines.interface import AdapterPaths, Image, ProbePaths
from tonnage.engines.lifetime import startup_seconds
from tonnage.engines.metrics import CacheMetric, LoadMetrics
from tonnage.engines.model_source import medium_of
from tonnage.engines.replica import Replica
from tonnage.engines.startup_log import StartupLog
from tonnage.engines.vllm.adapters import host_memory_gib, runtime_updates
from tonnage.engines.vllm.arguments import (
    WORKER_FLAG,
    check_arguments,
    read_parallelism,
    render_arguments,
)
from tonnage.engines.vllm.drain import render_lifecycle
from tonnage.engines.vllm.image import SERVE, release_of, vendor_image
from tonnage.engines.vllm.metrics import CACHE_METRIC, LOAD_METRICS
from tonnage.engines.vllm.startup_log import startup_log
from tonnage.engines.vllm.streaming import check_loader, staging_gib
from tonnage.fit.model import Parallelism


class Vllm:
    """The engine of the vLLM project."""

    @property
    def name(self) -> str:
        """`vllm`."""
        return "vllm"

    @property
    def title(self) -> str:
        """As the project writes it."""
        return "vLLM"

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of the package."""
        return SERVE

    @property
    def probe_paths(self) -> ProbePaths:
        """/health for all: it answers 200 as long as the engine lives. With a full queue vLLM
        answers requests with 503, but not this path."""
        path = load_defaults().server.health_path
        return ProbePaths(path, path, path)

    @property
    def adapter_paths(self) -> AdapterPaths:
        """Those of vLLM."""
        return AdapterPaths("/v1/load_lora_adapter", "/v1/unload_lora_adapter")

    @property
    def address_variable(self) -> str:
        """vllm/envs.py."""
        return "VLLM_HOST_IP"

    @property
    def download_flags(self) -> frozenset[str]:
        """vllm/config/load.py."""
        return frozenset({"--download-dir"})

    @property
    def load_metrics(self) -> LoadMetrics:
        """Those of every vLLM."""
        return LOAD_METRICS

    @property
    def cache_metric(self) -> CacheMetric:
        """The configuration of the cache."""
        return CACHE_METRIC

    @property
    def startup_log(self) -> StartupLog:
        """vLLM's own words, and those of torch."""
        return startup_log()

    def release(self, version: str | None, catalog: Catalog) -> str:
        """The vLLM release, without a leading v."""
        return catalog.release(version).version

    def keep_release(self, version: str | None, catalog: Catalog) -> Catalog:
        """The catalogue with the release as its default."""
        return catalog.with_default_release(version)

    def check(self, spec: InferenceDeploymentSpec) -> None:
        """Refuse extra arguments that only the operator may set, and loaders that would load
        nothing. Raises ReservedArgumentError."""
        check_arguments(spec)
        check_loader(spec)

    def choose_vendor_image(self, replica: Replica) -> Image:
        """The vendor's image of the vLLM release."""
        return vendor_image(replica)

    def render_arguments(self, replica: Replica) -> list[str]:
        """The arguments of `vllm serve`."""
        return render_arguments(replica)

    def read_parallelism(self, arguments: Sequence[str]) -> Parallelism:
        """By the sizes of tensor, pipeline and data parallelism and the number of nodes."""
        return read_parallelism(arguments)

    def render_worker_arguments(self, arguments: Sequence[str]) -> list[str]:
        """The same without a server."""
        return [*arguments, WORKER_FLAG]

    def render_variables(self, replica: Replica) -> Mapping[str, str]:
        """The timeout of the start, 600 s by default, as long as that of the startup probe, and the
        right to change adapters."""
        seconds = startup_seconds(replica.model_gib, medium_of(replica.spec))
        timeout = {"VLLM_ENGINE_READY_TIMEOUT_S": str(seconds)}
        return timeout | runtime_updates(replica.spec)

    def render_lifecycle(self, replica: Replica) -> dict[str, Any]:
        """A pause, or for older releases a wait for the end of all requests."""
        return render_lifecycle(release_of(replica), replica.spec.rollout)

    def extra_memory_gib(self, replica: Replica) -> int:
        """Each worker of the pod keeps all adapters, and a streamer has a buffer in each."""
        return host_memory_gib(replica) + staging_gib(replica)
