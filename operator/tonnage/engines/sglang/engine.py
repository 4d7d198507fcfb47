"""SGLang as a kind of engine."""

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.engines.interface import AdapterPaths, Image, ProbePaths
from tonnage.engines.lifetime import render_pause
from tonnage.engines.metrics import CacheMetric, LoadMetrics
from tonnage.engines.replica import Replica
from tonnage.engines.sglang.arguments import (
    check_arguments,
    read_parallelism,
    render_arguments,
)
from tonnage.engines.sglang.metrics import CACHE_METRIC, LOAD_METRICS
from tonnage.engines.sglang.startup_log import startup_log
from tonnage.engines.startup_log import StartupLog
from tonnage.fit.model import Parallelism


class Sglang:
    """The engine of the SGLang project."""

    @property
    def name(self) -> str:
        """`sglang`."""
        return "sglang"

    @property
    def title(self) -> str:
        """As the project writes it."""
        return "SGLang"

    @property
    def command(self) -> tuple[str, ...]:
        """The module that starts the server; no image has it as its entrypoint."""
        return ("python3", "-m", "sglang.launch_server")

    @property
    def probe_paths(self) -> ProbePaths:
        """/health answers 503 until the server has started, /ready also while it drains.

        Source: sglang/srt/entrypoints/http_server.py.
        """
        return ProbePaths("/health", "/ready", "/health")

    @property
    def adapter_paths(self) -> AdapterPaths:
        """Those of SGLang 0.5.23."""
        return AdapterPaths("/load_lora_adapter", "/unload_lora_adapter")

    @property
    def address_variable(self) -> str:
        """sglang/srt/environ.py."""
        return "SGLANG_HOST_IP"

    @property
    def download_flags(self) -> frozenset[str]:
        """The folder for weights."""
        return frozenset({"--download-dir"})

    @property
    def load_metrics(self) -> LoadMetrics:
        """Those of every server with --enable-metrics."""
        return LOAD_METRICS

    @property
    def cache_metric(self) -> CacheMetric:
        """The size of the pool."""
        return CACHE_METRIC

    @property
    def startup_log(self) -> StartupLog:
        """SGLang's own words, and those of torch."""
        return startup_log()

    def release(self, version: str | None, catalog: Catalog) -> str:
        """The release of the catalogue, which is the only one that a spec can name."""
        return load_sglang_server().version

    def keep_release(self, version: str | None, catalog: Catalog) -> Catalog:
        """The catalogue: it has one release."""
        return catalog

    def check(self, spec: InferenceDeploymentSpec) -> None:
        """Refuse extra arguments that only the operator may set. Raises ReservedArgumentError."""
        check_arguments(spec)

    def choose_vendor_image(self, replica: Replica) -> Image:
        """The project's image for the architecture of the GPU.

        A GPU without one has no calculation of memory either, so no replica is placed on it.
        """
        server = load_sglang_server()
        image = server.image(replica.vendor, replica.accelerator.arch)
        assert image is not None, f"{replica.accelerator.id} has no image"
        is_known = replica.option.pool.cuda is not None
        return Image(image, self.command, server.oldest_driver if is_known else None)

    def render_arguments(self, replica: Replica) -> list[str]:
        """The arguments of the server."""
        return render_arguments(replica)

    def read_parallelism(self, arguments: Sequence[str]) -> Parallelism:
        """By the sizes of tensor and pipeline parallelism and the number of nodes."""
        return read_parallelism(arguments)

    def render_worker_arguments(self, arguments: Sequence[str]) -> list[str]:
        """The same: every pod of a group runs the same command."""
        return list(arguments)

    def render_variables(self, replica: Replica) -> Mapping[str, str]:
        """/health generates no token, which would wait behind long prompts; a watchdog of SGLang
        ends a server that hangs."""
        return {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}

    def render_lifecycle(self, replica: Replica) -> dict[str, Any]:
        """A pause. SGLang ends all of its requests after SIGTERM, however long they take."""
        return render_pause()

    def extra_memory_gib(self, replica: Replica) -> int:
        """Adapters are refused."""
        return 0
