"""Published measurements of serving throughput, as questions to the estimate.

Every record of tests/data/throughput/records.jsonl keeps its source and date; its figures are per
GPU and of the metric that the source states: generated tokens (output), tokens in and out (total),
or tokens of prompts (input). What a source leaves open is filled in the same way for all:

- lengths and latency limits of MLPerf scenarios: tests/data/throughput/mlperf.yaml;
- no concurrency: as many requests as the engine takes;
- no layout: the fastest that the estimate knows, of those that fill the GPUs;
- engine: the vLLM release of the record's time; another engine's record is held against today's
  release, because that is what would be deployed instead;
- KV cache in FP8 for quantised models in MLPerf and under TensorRT-LLM, whose builds keep it so.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from accuracy.records import models
from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.checkpoint.shape import parse_config

_FOLDER: Final = Path(__file__).parents[2] / "tests" / "data" / "throughput"
_SATURATING: Final = 100_000
_STORED: Final = {
    "fp8": Quantization("fp8", 8),
    "nvfp4": Quantization("modelopt", 4, group_size=16, scale_bits=8),
    "mxfp4": Quantization("quark", 4, group_size=32, scale_bits=8),
}


class Benchmark(BaseModel):
    """Mean lengths of an MLPerf benchmark's data set, and its latency limits by scenario."""

    input_tokens: int
    output_tokens: int
    limits: dict[str, tuple[float, float]]


class Record(BaseModel):
    """One measurement; `left_out` says why no estimate can be made for it."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, protected_namespaces=()
    )

    id: str
    source: str
    published: str
    accelerator: str
    gpus: int | None = None
    model: str
    config: str
    precision: str
    quantization: str | None = None
    engine: str | None = None
    release: str | None = None
    kv_cache_dtype: str
    tensor: int | None = None
    data: int | None = None
    max_num_seqs: int | None = None
    scenario: str
    concurrency: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    metric: str
    tokens_per_second_per_gpu: float
    left_out: str | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of a prompt and of an output."""
        if self.input_tokens is not None and self.output_tokens is not None:
            return self.input_tokens, self.output_tokens
        benchmark = benchmarks()[self.model]
        return benchmark.input_tokens, benchmark.output_tokens

    @property
    def demanded(self) -> int:
        """Requests at once, over all GPUs."""
        return self.concurrency or _SATURATING

    @property
    def measured(self) -> float:
        """Generated tokens a second of one GPU (of prompts, where only those were measured)."""
        prompts, outputs = self.lengths
        share = outputs / (prompts + outputs) if self.metric == "total" else 1.0
        return self.tokens_per_second_per_gpu * share

    @property
    def limits(self) -> tuple[float, float] | None:
        """Seconds to the first token and between two that the scenario allows, None: no limits."""
        if not self.scenario.startswith("mlperf-"):
            return None
        scenario = self.scenario.removeprefix("mlperf-")
        return benchmarks()[self.model].limits.get(scenario)

    @property
    def group(self) -> str:
        """What was published together: the site, and the repository or page."""
        return "/".join(self.source.split("/")[2:5])

    def checkpoint(self) -> Checkpoint:
        """The model as it was served."""
        return _checkpoint(self.config, self.quantization)


@cache
def records() -> tuple[Record, ...]:
    """All records, those included for which no estimate can be made."""
    lines = (_FOLDER / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Record.model_validate(json.loads(line)) for line in lines)


@cache
def benchmarks() -> dict[str, Benchmark]:
    """MLPerf's benchmarks by model."""
    content = yaml.safe_load((_FOLDER / "mlperf.yaml").read_text(encoding="utf-8"))
    return {name: Benchmark.model_validate(each) for name, each in content["benchmarks"].items()}


@cache
def _checkpoint(config: str, quantization: str | None) -> Checkpoint:
    known = models().get(config)
    shape = parse_config(known.config) if known else load_shape(config)
    if quantization is not None:
        shape = replace(shape, quantization=_STORED[quantization])
    return Checkpoint(shape)
