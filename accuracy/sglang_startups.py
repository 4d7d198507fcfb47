"""SGLang's memory against start-ups of SGLang that were published.

Releases before 0.5.23 choose other default fractions, but all of them print the fraction that they
use and the free memory, and turn these into a pool in the same way: free memory after loading the
weights less the rest of the free memory before. What a record cannot judge is not in its `use_for`.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from accuracy.measures import Error, relative_error
from accuracy.records import GIB, Record, models, read_lines
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.model import EngineOptions, IllegalParallelism, Parallelism
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.memory import judge_sglang_fit
from tonnage.fit.sglang.model import Device, NotCalculatedError, PoolSizes, Replica, ServerOptions
from tonnage.fit.sglang.pools import size_pools
from tonnage.fit.sglang.weights import sglang_weights

ROUNDING_GIB: Final = 0.01
"""Keys and values are printed with two decimals each."""

_STAND_IN: Final = "a100-sxm-80gb"
"""For the weights on a card that the log does not name or the catalogue does not have."""
_STAND_IN_ARCHS: Final = {"sm_103": "sm_100"}
_OTHER_STAND_IN_ARCH: Final = "sm_90"
"""For the pools on a card that is not calculated: the pages are as large there."""
_MIB_PER_GIB: Final = 1024


class Printed(Record):
    """What SGLang printed for one GPU, the least of all ranks, in its GB, which are GiB.

    `device_gi_b` is the memory of a GPU on which loading failed. `kv_gi_b` are keys and values.
    """

    outcome: str
    detail: str | None = None
    device_gi_b: float | None = None
    free_before_gi_b: float | None = None
    free_after_gi_b: float | None = None
    weights_gi_b: float | None = None
    tokens: int | None = None
    kv_gi_b: float | None = None

    @property
    def loaded_gi_b(self) -> float | None:
        """Weights: `mem usage`, or the change of the free memory in logs without it."""
        if self.weights_gi_b is not None:
            return self.weights_gi_b
        if self.free_before_gi_b is None or self.free_after_gi_b is None:
            return None
        return self.free_before_gi_b - self.free_after_gi_b


class SGLangStartUp(Record):
    """A start-up and where it was published.

    `published` is the model of the log where `model` is another of the same shape; `config` stands
    here for models that models.jsonl does not have, its shape written from memory of the published
    file. `accelerator` is None for a card that is not certain. With data-parallel attention, ranks
    hold whole heads.
    """

    id: str
    source: str
    date: str
    release: str | None = None
    card: str | None = None
    accelerator: str | None = None
    model: str
    published: str | None = None
    config: dict[str, Any] | None = None
    tensor_parallel_size: int
    attention_data_parallel_size: int = 1
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None
    context_length: int | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    dtype: str = "auto"
    quantization: str = "auto"
    observed: Printed
    use_for: tuple[str, ...]
    remark: str | None = None

    @property
    def held_out(self) -> bool:
        """Whether nothing was derived from it: a third of the sources, by their address alone."""
        return int(hashlib.sha256(self.source.encode()).hexdigest(), 16) % 3 == 0

    @property
    def shape(self) -> ModelShape:
        """The model's shape."""
        return parse_config(models()[self.model].config if self.config is None else self.config)

    @property
    def covered(self) -> bool:
        """Whether the calculation covers the card; others have a stand-in for its arithmetic."""
        known = load_sglang_memory().architectures
        return self.accelerator is not None and self._accelerator.arch in known

    @property
    def _accelerator(self) -> Accelerator:
        return load_catalog().accelerator(self.accelerator or _STAND_IN)

    def replica(self) -> Replica:
        """The replica as the calculation takes it."""
        card, observed = self._accelerator, self.observed
        memory = observed.device_gi_b or observed.free_before_gi_b or 0
        reported = card.driver_mib if self.accelerator is not None else None
        options = ServerOptions(
            context_length=self.context_length or self.shape.max_position_embeddings,
            tensor_parallel_size=self.tensor_parallel_size // self.attention_data_parallel_size,
            mem_fraction_static=self.mem_fraction_static,
            chunked_prefill_size=self.chunked_prefill_size,
            max_running_requests=self.max_running_requests,
        )
        near = _STAND_IN_ARCHS.get(card.arch, _OTHER_STAND_IN_ARCH)
        arch = card.arch if self.covered else near
        return Replica(self.shape, options, Device(arch, reported or int(memory * _MIB_PER_GIB)))

    def fraction(self) -> float:
        """The fraction that is printed, which nothing is taken from any more, or the default."""
        if self.mem_fraction_static is not None:
            return self.mem_fraction_static
        return static_fraction(self.replica(), load_sglang_memory()).fraction

    def weights_bytes(self) -> int:
        """The weights of a GPU by the calculation."""
        release, parallelism = load_catalog().release(None), Parallelism(self.tensor_parallel_size)
        checkpoint, options = Checkpoint(self.shape), self._options()
        (weights,) = sglang_weights(checkpoint, parallelism, options, self._accelerator, release)
        return weights

    def planned_tokens(self) -> int | None:
        """The pool by the catalogue's memory, without the log's; None where that is not planned."""
        memory, parallelism = self._accelerator.memory_bytes, Parallelism(self.tensor_parallel_size)
        plain = self.attention_data_parallel_size == 1 and self.max_total_tokens is None
        if memory is None or not (plain and self.covered):
            return None
        checkpoint, options, card = Checkpoint(self.shape), self._options(), self._accelerator
        try:
            verdict = judge_sglang_fit(
                checkpoint,
                card,
                memory,
                parallelism,
                options,
                options.max_model_len,
                load_catalog(),
            )
        except NotCalculatedError:
            return None
        return None if isinstance(verdict, IllegalParallelism) else verdict.account.kv_cache_tokens

    def _options(self) -> EngineOptions:
        """The arguments that both engines have."""
        return EngineOptions(
            release=load_catalog().default_release,
            max_model_len=self.context_length or self.shape.max_position_embeddings,
            gpu_memory_utilization=self.mem_fraction_static,
            max_num_batched_tokens=self.chunked_prefill_size,
            max_num_seqs=self.max_running_requests,
            dtype=self.dtype,
            quantization=self.quantization,
        )

    def pools(self, pool_bytes: int) -> PoolSizes:
        """The pools in so much memory. Raises NotCalculatedError."""
        return size_pools(self.replica(), pool_bytes, load_sglang_memory())

    def printed_pool_bytes(self) -> int | None:
        """The memory of the pools by the printed free memory, None if that is not printed."""
        before, after = self.observed.free_before_gi_b, self.observed.free_after_gi_b
        if before is None or after is None:
            return None
        return int((after - before * (1 - self.fraction())) * GIB)

    def free_bytes(self) -> int:
        """The free memory before loading: as printed, or all of the GPU's."""
        observed, whole = self.observed, self._accelerator.memory_bytes or 0
        printed = observed.free_before_gi_b or observed.device_gi_b
        return whole if printed is None else int(printed * GIB)

    def starts(self) -> bool | None:
        """Whether the calculated weights leave a pool; None if the model is not calculated."""
        try:
            static = int(self.free_bytes() * self.fraction())
            return self.pools(static - self.weights_bytes()).tokens > 0
        except NotCalculatedError:
            return None


@dataclass(frozen=True, slots=True)
class LogVerdicts:
    """Verdicts against outcomes; ids of those that are wrong, and of those that have no verdict."""

    judged: int
    wrong: tuple[str, ...]
    not_calculated: tuple[str, ...]

    @property
    def right_share(self) -> float | None:
        """The share that is right of those with a verdict."""
        answered = self.judged - len(self.not_calculated)
        return 1 - len(self.wrong) / answered if answered else None


@cache
def sglang_startups(held_out: bool) -> tuple[SGLangStartUp, ...]:
    """The start-ups that the calculation was mended with, or the held-out ones."""
    read = (SGLangStartUp.model_validate(line) for line in read_lines("sglang_startups.jsonl"))
    return tuple(record for record in read if record.held_out == held_out)


def log_weights_errors(records: Iterable[SGLangStartUp]) -> Sequence[Error]:
    """Relative errors of the weights of one GPU."""
    return [
        Error(record.id, relative_error(record.weights_bytes() / GIB, printed))
        for record in records
        if "weights" in record.use_for and (printed := record.observed.loaded_gi_b)
    ]


def log_rate_errors(records: Iterable[SGLangStartUp]) -> Sequence[Error]:
    """GiB that the printed tokens, and a page more, differ by from the size of keys and values."""
    return [
        Error(record.id, abs(_pool_gib(record.pools(0), tokens) - size))
        for record in records
        if "kvRate" in record.use_for
        and (tokens := record.observed.tokens)
        and (size := record.observed.kv_gi_b)
    ]


def _pool_gib(pools: PoolSizes, tokens: int) -> float:
    """A pool has a page that no request uses."""
    return (tokens + pools.page_tokens) * pools.bytes_per_token / GIB


def log_token_errors(records: Iterable[SGLangStartUp]) -> Sequence[Error]:
    """Relative errors of the tokens of the pool, from the printed fraction and free memory."""
    return [
        Error(record.id, _token_error(record, memory))
        for record in records
        if "kvTokens" in record.use_for and (memory := record.printed_pool_bytes()) is not None
    ]


def _token_error(record: SGLangStartUp, memory: int) -> float:
    pools, observed = record.pools(memory), record.observed
    if observed.tokens is not None:
        return relative_error(pools.tokens, observed.tokens)
    return relative_error(_pool_gib(pools, pools.tokens), observed.kv_gi_b or 0)


def log_verdicts(records: Iterable[SGLangStartUp]) -> LogVerdicts:
    """Which start-ups are called right."""
    judged = [(record, record.starts()) for record in records if "verdict" in record.use_for]
    return LogVerdicts(
        judged=len(judged),
        wrong=_ids(judged, lambda record, starts: starts is (record.observed.outcome != "starts")),
        not_calculated=_ids(judged, lambda _, starts: starts is None),
    )


def _ids(
    judged: Iterable[tuple[SGLangStartUp, bool | None]],
    keep: Callable[[SGLangStartUp, bool | None], bool],
) -> tuple[str, ...]:
    return tuple(record.id for record, starts in judged if keep(record, starts))
