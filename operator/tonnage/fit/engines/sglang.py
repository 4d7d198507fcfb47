"""What SGLang answers about memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.rules import Settings
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.calibration.corrections import Origin
from tonnage.fit.legality.compatibility import Compatibility, Incompatible
from tonnage.fit.legality.engine_choice import explain_missing_class
from tonnage.fit.legality.parallelism import (
    legal_degrees,
    legal_over_nodes,
    legal_tensor_over_nodes,
)
from tonnage.fit.model import (
    DoesNotFit,
    EngineOptions,
    FitVerdict,
    MemoryAccount,
    MemoryFit,
    Parallelism,
)
from tonnage.fit.questions.measured import key_of
from tonnage.fit.questions.question import FitQuestion, NodeLimits, OwnSettings
from tonnage.fit.sglang.context import sglang_context_limit, sglang_too_long
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.memory import bytes_of, judge_sglang_fit, limiting_stage, replica_of
from tonnage.fit.sglang.model import NotCalculatedError, Replica
from tonnage.fit.sglang.pools import max_requests, size_pools
from tonnage.fit.sglang.stages import check_stages, stage_replicas

_SETTING_NAMES: Final = {
    "gpuMemoryUtilization": "memFractionStatic",
    "maxNumSeqs": "--max-running-requests",
    "maxNumBatchedTokens": "--chunked-prefill-size",
}

_NOT_CALCULATED: Final = "NotCalculated"
_AUTO: Final = "auto"

_BY_FALLBACK: Final = (
    "its fallback on Transformers may run it, with other memory than is calculated here"
)


@dataclass(frozen=True, slots=True)
class SglangMemory:
    """The memory of SGLang, of the release in the catalogue.

    The options are those that vLLM has by other names (`fit.sglang.memory.replica_of`).
    """

    @property
    def name(self) -> str:
        """`sglang`."""
        return "sglang"

    def is_corrected_by(self, options: EngineOptions, origin: Origin) -> bool:
        """Measurements without arguments that change the memory by other rules. A failed start may
        have lacked what other processes held: SGLang does not check what is free."""
        return origin is Origin.MEASUREMENT and not options.uncounted

    @property
    def oldest_cuda(self) -> CudaVersion | None:
        """That of the images for NVIDIA."""
        return load_sglang_server().oldest_cuda

    @property
    def has_speed(self) -> bool:
        """No: its kernels and its scheduler are others."""
        return False

    def judge(self, question: FitQuestion, catalog: Catalog) -> FitVerdict:
        """As `fit.sglang.memory.judge_sglang_fit`."""
        return judge_sglang_fit(
            question.checkpoint,
            question.accelerator,
            question.device_bytes,
            question.parallelism,
            question.options,
            question.required_tokens,
            catalog,
            question.corrections.find(key_of(question, catalog)),
        )

    def judge_compatibility(
        self, question: FitQuestion, allow: Collection[str], catalog: Catalog
    ) -> Compatibility:
        """Whether the memory is calculated at all, and what it leaves out: arguments, and how a
        model class runs that SGLang has no code for. The rules of the catalogue are about vLLM."""
        refusals = tuple(_check_quantization(question.checkpoint.shape, question.options))
        try:
            size_pools(replica_in(question), 0, load_sglang_memory())
        except NotCalculatedError as error:
            refusals += (Incompatible(_NOT_CALCULATED, str(error), "use spec.engine.vllm"),)
        missing = explain_missing_class(
            self.name, self.release(question.options, catalog), question.checkpoint.shape
        )
        warnings = (
            *(() if missing is None else (f"{missing}; {_BY_FALLBACK}",)),
            *(f"{one}: the calculation leaves it out" for one in question.options.uncounted),
        )
        return Compatibility(refusals, (), warnings, Settings())

    def list_parallelisms(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits, catalog: Catalog
    ) -> tuple[Sequence[Parallelism], Sequence[Parallelism]]:
        """Tensor parallelism in the sizes of vLLM; over several nodes in one group where the user
        allows it, since no speed compares the two, and else in pipeline stages. Data-parallel
        attention has no calculation yet."""
        release, gpus, nodes = catalog.release(options.release), limits.gpus_per_node, limits.nodes
        on_one_node = legal_degrees(shape, options, release, gpus)
        groups = legal_tensor_over_nodes(shape, options, release, gpus, nodes)
        if limits.tensor_over_nodes and groups:
            return on_one_node, groups
        memory = load_sglang_memory()
        stages = legal_over_nodes(shape, options, release, gpus, nodes)
        return on_one_node, [
            each for each in stages if check_stages(shape, each, options, memory) is None
        ]

    def explain_one_node(
        self, shape: ModelShape, options: EngineOptions, limits: NodeLimits
    ) -> str | None:
        """Why the model does not run in pipeline stages, and what would have to be allowed."""
        if limits.nodes == 1 or limits.tensor_over_nodes:
            return None
        stages = Parallelism(pipeline=limits.nodes, nodes=limits.nodes)
        illegal = check_stages(shape, stages, options, load_sglang_memory())
        if illegal is None:
            return None
        return (
            "on several nodes SGLang needs spec.placement.multiNode.tensorParallel and a pool with"
            f" an interconnect, because {illegal.message} (rule {illegal.rule})"
        )

    def context_limit(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> int | None:
        """The length in config.json."""
        return sglang_context_limit(shape)

    def explain_too_long(
        self, shape: ModelShape, options: EngineOptions, catalog: Catalog
    ) -> str | None:
        """By that limit."""
        return sglang_too_long(shape, options.max_model_len)

    def most_requests(self, question: FitQuestion, account: MemoryAccount, catalog: Catalog) -> int:
        """max_running_requests, which follows from the pool."""
        return max_requests(replica_in(question), account.kv_cache_tokens, load_sglang_memory())

    def own_settings(self, question: FitQuestion, catalog: Catalog) -> OwnSettings:
        """mem_fraction_static as an argument would have it, which aiter lowers as well, the
        requests that the pool allows, and the chunk for the size of the GPU."""
        replica, memory = replica_in(question), load_sglang_memory()
        own = static_fraction(replica, memory)
        return OwnSettings(
            own.fraction / own.aiter_factor, memory.requests.most, own.chunked_prefill
        )

    def setting_name(self, setting: str) -> str:
        """The field of the spec, or the argument."""
        return _SETTING_NAMES[setting]

    def accepts_batch(self, question: FitQuestion, catalog: Catalog) -> bool:
        """SGLang chunks every prompt."""
        return True

    def measured_kv_bytes(self, tokens: int, question: FitQuestion, catalog: Catalog) -> int:
        """The pages of these tokens, on the pipeline stage that holds the fewest."""
        stage, stages = 0, stage_replicas(replica_in(question))
        verdict = self.judge(question, catalog) if len(stages) > 1 else None
        if isinstance(verdict, MemoryFit | DoesNotFit):
            stage = limiting_stage(verdict.account.stages)
        return bytes_of(size_pools(stages[stage], 0, load_sglang_memory()), tokens)

    def release(self, options: EngineOptions, catalog: Catalog) -> str:
        """The only one of the catalogue."""
        return load_sglang_server().version

    def release_note(self, options: EngineOptions, catalog: Catalog) -> str | None:
        """None."""
        return None


SGLANG_MEMORY: Final = SglangMemory()


def replica_in(question: FitQuestion) -> Replica:
    """The replica of a question about SGLang."""
    return replica_of(
        question.checkpoint.shape,
        question.accelerator,
        question.device_bytes,
        question.parallelism,
        question.options,
    )


def _check_quantization(shape: ModelShape, options: EngineOptions) -> Iterator[Incompatible]:
    """Refuse a method that neither the checkpoint has nor SGLang quantizes its weights with."""
    given, known = options.quantization, load_sglang_memory().quantizations
    stored = None if shape.quantization is None else shape.quantization.method
    accepted: Collection[str]
    if stored is None:
        accepted, weights = known.online, "weights in 16 bits"
    else:
        accepted = {stored, *known.other_names.get(stored, ())}
        weights = f"a checkpoint in {stored}"
    if given != _AUTO and given not in accepted:
        message = f"quantization {given} of {weights} is not calculated for SGLang"
        yield Incompatible(_NOT_CALCULATED, message, "use quantization auto")
