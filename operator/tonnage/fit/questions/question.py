"""One question to the memory calculation, its answer, and the engine that answers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections, Origin
from tonnage.fit.legality.compatibility import Compatibility
from tonnage.fit.model import EngineOptions, FitVerdict, MemoryAccount, Parallelism


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """Does one replica of this model fit on these devices with this parallelism and these options?

    `device_bytes` is the memory of one device as torch reports it. The KV cache must hold one
    request of `options.max_model_len`, and `workload_tokens` at once if that is more.
    `corrections` come from earlier starts. `memory` is that of the engine that is asked.
    """

    checkpoint: Checkpoint
    accelerator: Accelerator
    device_bytes: int
    parallelism: Parallelism
    options: EngineOptions
    workload_tokens: int = 0
    corrections: Corrections = UNCORRECTED
    memory: "MemoryModel" = field(kw_only=True)

    @property
    def required_tokens(self) -> int:
        """Tokens that the KV cache must hold at once."""
        return max(self.options.max_model_len, self.workload_tokens)


def answer(question: FitQuestion, catalog: Catalog) -> FitVerdict:
    """The verdict on a question; raises what the engine's `judge` raises."""
    return question.memory.judge(question, catalog)


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The nodes that one replica may take, and which ways to divide it over GPUs are allowed."""

    gpus_per_node: int
    nodes: int = 1
    has_interconnect: bool = False
    data_parallel: bool = True
    tensor_over_nodes: bool = False


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """The values that an engine takes for settings which are left open."""

    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int


class MemoryModel(Protocol):
    """The memory of an engine, and the limits that follow from it."""

    @property
    def name(self) -> str:
        """The name of the engine, as in spec.engine."""
        ...

    def is_corrected_by(self, options: EngineOptions, origin: Origin) -> bool:
        """Whether what this says of starts with these options corrects the calculation."""
        ...

    @property
    def oldest_cuda(self) -> CudaVersion | None:
        """The CUDA version that drivers must support for every image of the engine, None where
        there are images for older ones."""
        ...

    @property
    def has_speed(self) -> bool:
        """Whether the estimate of throughput is about this engine."""
        ...

    def judge(self, question: FitQuestion, catalog: Catalog) -> FitVerdict:
        """The verdict on a question."""
        ...

    def judge_compatibility(
        self, question: FitQuestion, allow: Collection[str], catalog: Catalog
    ) -> Compatibility:
        """What the rules say of the model on the device; `allow` are those that the user
        overrides."""
        ...

    def list_parallelisms(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits, catalog: Catalog
    ) -> tuple[Sequence[Parallelism], Sequence[Parallelism]]:
        """The parallelisms that the engine runs the model with: on one node, and on several."""
        ...

    def explain_one_node(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits
    ) -> str | None:
        """Why replicas stay on one node although the limits allow several, None where they do
        not."""
        ...

    def context_limit(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> int | None:
        """The longest context that the engine accepts, None without a limit."""
        ...

    def explain_too_long(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> str | None:
        """Why the engine refuses the context of the options, None where it does not."""
        ...

    def most_requests(self, question: FitQuestion, account: MemoryAccount, catalog: Catalog) -> int:
        """Requests that the engine runs at a time, however short they are."""
        ...

    def own_settings(self, question: FitQuestion, catalog: Catalog) -> OwnSettings:
        """The engine's own settings on the device."""
        ...

    def setting_name(self, setting: str) -> str:
        """How users know a setting of `OwnSettings`, which has vLLM's name in the API."""
        ...

    def accepts_batch(self, question: FitQuestion, catalog: Catalog) -> bool:
        """Whether the engine starts with the batch of the options."""
        ...

    def measured_kv_bytes(self, tokens: int, question: FitQuestion, catalog: Catalog) -> int:
        """Bytes of one GPU for a KV cache that the engine reports as `tokens` tokens."""
        ...

    def release(self, options: EngineOptions, catalog: Catalog) -> str:
        """The release that is planned with."""
        ...

    def release_note(self, options: EngineOptions, catalog: Catalog) -> str | None:
        """A remark about the release that is planned with, None without one."""
        ...
