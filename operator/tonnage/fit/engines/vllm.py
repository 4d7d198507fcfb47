"""What vLLM answers about memory."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import whole_prompt_tokens
from tonnage.fit.calibration.corrections import Origin
from tonnage.fit.context import context_limit, tell_too_long
from tonnage.fit.legality.compatibility import Compatibility, judge_compatibility
from tonnage.fit.legality.parallelism import (
    legal_data_over_nodes,
    legal_data_parallel,
    legal_degrees,
    legal_over_nodes,
    legal_tensor_over_nodes,
)
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, FitVerdict, MemoryAccount, Parallelism
from tonnage.fit.questions.limits import batch_of
from tonnage.fit.questions.measured import measured_kv_bytes
from tonnage.fit.questions.question import FitQuestion, NodeLimits, OwnSettings


@dataclass(frozen=True, slots=True)
class VllmMemory:
    """The memory of vLLM, of the release in the options."""

    @property
    def name(self) -> str:
        """`vllm`."""
        return "vllm"

    def is_corrected_by(self, options: EngineOptions, origin: Origin) -> bool:
        """Always."""
        return True

    @property
    def oldest_cuda(self) -> CudaVersion | None:
        """A node on which no image runs is not usable at all."""
        return None

    @property
    def has_speed(self) -> bool:
        """The records of throughput that count are those of vLLM."""
        return True

    def judge(self, question: FitQuestion, catalog: Catalog) -> FitVerdict:
        """As `fit.memory.judge_fit`."""
        return judge_fit(
            question.checkpoint,
            question.accelerator,
            question.device_bytes,
            question.parallelism,
            question.options,
            question.required_tokens,
            catalog,
            question.corrections,
        )

    def judge_compatibility(
        self, question: FitQuestion, allow: Collection[str], catalog: Catalog
    ) -> Compatibility:
        """The rules of the catalogue."""
        return judge_compatibility(
            question.checkpoint, question.accelerator, question.options, allow, catalog
        )

    def list_parallelisms(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits, catalog: Catalog
    ) -> tuple[Sequence[Parallelism], Sequence[Parallelism]]:
        """Those that vLLM accepts."""
        release = catalog.release(options.release)
        gpus, most = limits.gpus_per_node, limits.nodes
        on_one_node = [*legal_degrees(shape, options, release, gpus)]
        over_nodes = [*legal_over_nodes(shape, options, release, gpus, most)]
        if limits.tensor_over_nodes:
            over_nodes += legal_tensor_over_nodes(shape, options, release, gpus, most)
        if limits.data_parallel:
            on_one_node += legal_data_parallel(shape, options, release, gpus)
        if limits.data_parallel and limits.has_interconnect:
            over_nodes += legal_data_over_nodes(shape, options, release, gpus, most)
        return on_one_node, over_nodes

    def explain_one_node(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits
    ) -> str | None:
        """They do not."""
        return None

    def context_limit(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> int | None:
        """The largest --max-model-len."""
        return context_limit(shape, options, catalog.release(options.release))

    def explain_too_long(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> str | None:
        """By that limit."""
        return tell_too_long(shape, options, catalog.release(options.release))

    def most_requests(self, question: FitQuestion, account: MemoryAccount, catalog: Catalog) -> int:
        """max_num_seqs, which does not depend on the KV cache."""
        return batch_of(question, catalog).max_num_seqs

    def own_settings(self, question: FitQuestion, catalog: Catalog) -> OwnSettings:
        """The release's defaults for the device."""
        batch = batch_of(question, catalog)
        return OwnSettings(
            catalog.release(question.options.release).gpu_memory_utilization,
            batch.max_num_seqs,
            batch.max_num_batched_tokens,
        )

    def setting_name(self, setting: str) -> str:
        """The same."""
        return setting

    def accepts_batch(self, question: FitQuestion, catalog: Catalog) -> bool:
        """Whether a step holds all requests, and a prompt that is not chunked.

        Source: vllm/config/scheduler.py verify_max_model_len.
        """
        shape, options = question.checkpoint.shape, question.options
        batch, release = batch_of(question, catalog), catalog.release(options.release)
        seqs = options.max_num_seqs or batch.max_num_seqs
        whole = whole_prompt_tokens(shape, options, question.accelerator, release)
        return batch.max_num_batched_tokens >= max(seqs, whole)

    def measured_kv_bytes(self, tokens: int, question: FitQuestion, catalog: Catalog) -> int:
        """The fewest blocks that give these tokens."""
        return measured_kv_bytes(tokens, question, catalog)

    def release(self, options: EngineOptions, catalog: Catalog) -> str:
        """That of the options."""
        return catalog.release(options.release).version

    def release_note(self, options: EngineOptions, catalog: Catalog) -> str | None:
        """That the catalogue does not have the release."""
        return catalog.release(options.release).note


VLLM_MEMORY: Final = VllmMemory()
