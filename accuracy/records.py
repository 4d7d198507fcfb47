"""The records: start-ups of vLLM that were published, what its own classes build, layouts that run.

A start-up has the case as `tonnage fit --batch` reads it and what vLLM printed. A build is what the
model classes and the KV cache planner of vLLM 0.32.0 make of a config.json, constructed without a
GPU as rank 0 of its group. A layout is one that a public benchmark runs.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from tonnage.cli.fit.case import FitCase, parse_case

FOLDER: Final = Path(__file__).parent / "records"
GIB: Final = 2**30

BUILD_VERSION: Final = "0.32.0"
BUILD_KV_CACHE_BYTES: Final = 40 * GIB
"""Memory that the planner was given, by vLLM's own --kv-cache-memory-bytes."""


class Record(BaseModel):
    """An entry of a file of records; unknown keys are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, protected_namespaces=()
    )


class Observed(Record):
    """What vLLM printed, for one GPU; `use_for` says what the record can judge."""

    outcome: str | None = None
    detail: str | None = None
    weights_gi_b: float | None = None
    kv_cache_gi_b: float | None = None
    kv_cache_gi_b_from_tokens: float | None = None
    activation_gi_b: float | None = None
    non_torch_gi_b: float | None = None
    cuda_graph_gi_b: float | None = None
    budget_gi_b: float | None = None
    kv_bytes_per_token: float | None = None
    attention_kind: str | None = None
    engine_generation: str
    quantized: bool
    use_for: tuple[str, ...] = ()
    confidence: str


class StartUp(Record):
    """A start-up and where it was published."""

    case: FitCase
    observed: Observed
    source: str


class Layout(Record):
    """A tensor-parallel layout that runs, and where that was published."""

    case: FitCase
    source: str


class Build(Record):
    """What vLLM's own classes make of a model; figures are missing where it refuses."""

    id: str
    model: str
    tensor_parallel_size: int
    kv_cache_dtype: str
    accepted: bool
    speculative_tokens: int = 0
    enable_expert_parallel: bool = False
    accelerator: str = "h200-sxm-141gb"
    dtype: str | None = None
    quantization: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    loaded_bytes: int | None = None
    kv_bytes_per_token: float | None = None
    kv_cache_tokens: int | None = None

    def case(self) -> FitCase:
        """The question whose answer this is."""
        return parse_case(
            json.dumps(
                {
                    "id": self.id,
                    "vendor": "nvidia",
                    "model": {"id": self.model, "config": models()[self.model].config},
                    "accelerator": self.accelerator,
                    "gpusPerNode": 8,
                    "engine": {
                        "vllmVersion": BUILD_VERSION,
                        "tensorParallelSize": self.tensor_parallel_size,
                        "enableExpertParallel": self.enable_expert_parallel,
                        "dtype": self.dtype,
                        "quantization": self.quantization,
                        "kvCacheDtype": self.kv_cache_dtype,
                        "maxModelLen": self.max_model_len,
                        "maxNumSeqs": self.max_num_seqs,
                        "maxNumBatchedTokens": self.max_num_batched_tokens,
                        "speculativeTokens": self.speculative_tokens,
                        "extraArgs": ["--kv-cache-memory-bytes", str(BUILD_KV_CACHE_BYTES)],
                    },
                }
            )
        )


class StageBuild(Record):
    """What the same classes make of a 16-bit model with pipeline stages, or with data-parallel
    ranks that share the experts: bytes of the first rank of each stage.

    tests/vllm/server/test_stages.py builds some of them again. Models that also keep buffers for a
    batch are left out.
    """

    model: str
    pipeline_parallel_size: int
    data_parallel_size: int
    stage_bytes: tuple[int, ...]

    @property
    def id(self) -> str:
        """The model and its layout."""
        return f"{self.model}@pp{self.pipeline_parallel_size}dp{self.data_parallel_size}"

    def case(self) -> FitCase:
        """The question whose answer this is."""
        config = models()[self.model].config
        return parse_case(
            json.dumps(
                {
                    "id": self.id,
                    "vendor": "nvidia",
                    "model": {
                        "id": self.model,
                        "config": {
                            key: value
                            for key, value in config.items()
                            if key != "quantization_config"
                        },
                    },
                    "accelerator": "h200-sxm-141gb",
                    "engine": {
                        "vllmVersion": BUILD_VERSION,
                        "pipelineParallelSize": self.pipeline_parallel_size,
                        "dataParallelSize": self.data_parallel_size,
                        "enableExpertParallel": self.data_parallel_size > 1,
                        "dtype": "bfloat16",
                        "maxModelLen": 4096,
                    },
                }
            )
        )


class AdapterBuild(Record):
    """What vLLM's own LoRA layers allocate for a model on rank 0 of a pipeline stage, by layer.

    tests/support/vllm_lora makes them.
    """

    id: str
    model: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    stage: int
    enable_expert_parallel: bool
    max_loras: int
    max_lora_rank: int
    fully_sharded_loras: bool
    target_modules: tuple[str, ...]
    layers: dict[str, int]


class Model(Record):
    """A config.json, its family, and whether it is a published file."""

    model: str
    family: str
    origin: str
    config: dict[str, Any]


@cache
def startups() -> tuple[StartUp, ...]:
    """All start-ups that figures and floors are made of."""
    return _read_startups("startups.jsonl")


@cache
def held_out() -> tuple[StartUp, ...]:
    """Start-ups that were found when the calculation stood: nothing was derived from them."""
    return _read_startups("held_out.jsonl")


@cache
def layouts() -> tuple[Layout, ...]:
    """All layouts."""
    return tuple(
        Layout(case=parse_case(json.dumps(line.pop("case"))), **line)
        for line in read_lines("layouts.jsonl")
    )


@cache
def builds() -> tuple[Build, ...]:
    """All builds."""
    return tuple(Build.model_validate(line) for line in read_lines("builds.jsonl"))


@cache
def stage_builds() -> tuple[StageBuild, ...]:
    """All builds with pipeline stages or data-parallel ranks."""
    return tuple(StageBuild.model_validate(line) for line in read_lines("stages.jsonl"))


def adapter_builds() -> tuple[AdapterBuild, ...]:
    """All builds with buffers for LoRA adapters."""
    return tuple(AdapterBuild.model_validate(line) for line in read_lines("adapters.jsonl"))


@cache
def models() -> dict[str, Model]:
    """The models that were built, by name."""
    parsed = (Model.model_validate(line) for line in read_lines("models.jsonl"))
    return {model.model: model for model in parsed}


def _read_startups(name: str) -> tuple[StartUp, ...]:
    return tuple(
        StartUp(case=parse_case(json.dumps(line.pop("case"))), **line) for line in read_lines(name)
    )


def read_lines(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file of records, one a line."""
    with (FOLDER / name).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
