"""An engine that no program of the world is, to show what the operator needs to know of one.

It serves on the operator's port, takes `--key value` pairs, holds a token in a kilobyte, and always
needs ten gibibytes for its weights.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tonnage.api.conditions import Reason
from tonnage.api.inference import Engine, InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.errors import ReservedArgumentError
from tonnage.engines.interface import AdapterPaths, EngineKind, Image, ProbePaths
from tonnage.engines.lifetime import render_pause
from tonnage.engines.metrics import CacheMetric, LoadMetrics, MeasuredCache
from tonnage.engines.model_source import loaded_model
from tonnage.engines.registry import ENGINE_KINDS
from tonnage.engines.replica import Replica
from tonnage.engines.startup_log import FailureRule, StartupLog
from tonnage.fit.calibration.corrections import Origin
from tonnage.fit.engines.registry import ENGINE_FITS, EngineFit
from tonnage.fit.engines.vllm import VllmMemory
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryAccount,
    MemoryFit,
    MemoryTerm,
    Parallelism,
)
from tonnage.fit.options import engine_options
from tonnage.fit.questions.question import FitQuestion
from tonnage.placement.adjustments import ShortfallKind

NAME = "double"
GIB = 2**30
WEIGHTS_BYTES, TOKEN_BYTES = 10 * GIB, 1024
NEED = r"needs (?P<amount>[0-9]+) (?P<unit>GiB)"
OUT_OF_MEMORY = FailureRule(
    reason=Reason.OUT_OF_MEMORY,
    words="the model starves",
    source="this test",
    ran_short_of=ShortfallKind.ALLOCATION,
    needed=NEED,
)


class DoubleMemory(VllmMemory):
    """Half of a device is for weights and tokens."""

    @property
    def name(self) -> str:
        return NAME

    def is_corrected_by(self, options: EngineOptions, origin: Origin) -> bool:
        return False

    def judge(self, question: FitQuestion, catalog: Catalog) -> FitVerdict:
        budget, weights = question.device_bytes // 2, WEIGHTS_BYTES // question.parallelism.gpus
        account = MemoryAccount(
            device_bytes=question.device_bytes,
            budget_bytes=budget,
            weights_bytes=weights,
            activation_bytes=0,
            non_torch_bytes=0,
            graph_bytes=0,
            kv_cache_bytes=budget - weights,
            request_kv_bytes=question.options.max_model_len * TOKEN_BYTES,
            kv_bytes_per_token=TOKEN_BYTES,
            kv_cache_tokens=(budget - weights) // TOKEN_BYTES,
            needed_kv_bytes=question.required_tokens * TOKEN_BYTES,
        )
        if account.margin_bytes < 0:
            needed, left = account.needed_kv_bytes, account.kv_cache_bytes
            return DoesNotFit(MemoryTerm.KV_CACHE, needed, left, account)
        return MemoryFit(account, question.required_tokens)

    def measured_kv_bytes(self, tokens: int, question: FitQuestion, catalog: Catalog) -> int:
        return tokens * TOKEN_BYTES


class DoubleEngine:
    """Its kind."""

    name = NAME
    title = "Double"
    command = ("double-serve",)
    probe_paths = ProbePaths("/started", "/ready", "/alive")
    adapter_paths = AdapterPaths("/adapters/add", "/adapters/remove")
    address_variable = "DOUBLE_ADDRESS"
    download_flags: frozenset[str] = frozenset()
    load_metrics = LoadMetrics(
        "double:running", "double:waiting", "double:cache", "double:ttft", None, "double:tpot",
        rank_label="rank",
    )  # fmt: skip
    cache_metric = CacheMetric(
        "double:cache_size", lambda labels, _: MeasuredCache(int(labels["tokens"])), "rank"
    )
    startup_log = StartupLog(
        re.compile(r"^\[double\] "),
        re.compile("FATAL"),
        rules=((OUT_OF_MEMORY, re.compile(OUT_OF_MEMORY.words)),),
    )

    def release(self, version: str | None, catalog: Catalog) -> str:
        return version or "1"

    def keep_release(self, version: str | None, catalog: Catalog) -> Catalog:
        return catalog

    def check(self, spec: InferenceDeploymentSpec) -> None:
        for index, argument in enumerate(spec.engine.settings.extra_args):
            if argument == "--model":
                field = f"spec.engine.{NAME}.extraArgs[{index}]"
                raise ReservedArgumentError(field, argument, argument, "", "use spec.model.source")

    def choose_vendor_image(self, replica: Replica) -> Image:
        return Image(f"double/{replica.vendor}:1")

    def render_arguments(self, replica: Replica) -> list[str]:
        model = loaded_model(replica.spec, replica.owner.name)
        tensor = str(replica.option.parallelism.tensor)
        return ["--model", model, "--gpus", tensor, *replica.spec.engine.settings.extra_args]

    def read_parallelism(self, arguments: Sequence[str]) -> Parallelism:
        return Parallelism(tensor=int(arguments[arguments.index("--gpus") + 1]))

    def render_worker_arguments(self, arguments: Sequence[str]) -> list[str]:
        return [*arguments, "--worker"]

    def render_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"DOUBLE_QUIET": "1"}

    def render_lifecycle(self, replica: Replica) -> dict[str, Any]:
        return render_pause()

    def extra_memory_gib(self, replica: Replica) -> int:
        return 0


@contextmanager
def double_engine() -> Iterator[EngineKind]:
    """Register the engine, and let every spec name it."""
    engine: EngineKind = DoubleEngine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINE_KINDS, NAME, engine)
        patch.setitem(ENGINE_FITS, NAME, EngineFit(DoubleMemory(), engine_options))
        patch.setattr(Engine, "name", property(lambda self: NAME))
        yield engine
