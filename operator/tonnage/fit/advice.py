"""What to change when a model does not fit: the smallest change that makes it fit.

Every change that is told has been judged; none is a guess. Smaller is what takes less away from
the user, in this order:

1. What the user did not choose, before anything that was given explicitly.
2. Among these: a lower memory utilization where graphs or the process's context find no room beside
   what vLLM may use, whole experts on each GPU (nothing is lost), fewer sequences of a step (the
   KV cache seldom holds as many), fewer tokens of a step (prefill is slower), an FP8 KV cache (a
   little precision), no graphs (decoding is slower), more GPUs (money), FP8 weights (the model's
   answers change a little), a shorter context (requests are refused). A context that nobody asked
   for, the model's own maximum, comes right after the batch.

A change that fits with room to spare goes before one that fits tightly; a change of many settings
comes last. Of one kind the change is as small as it can be: the most sequences, the fewest GPUs,
the longest context that fit. Where no single setting that was left open helps, several of them are
changed together, as few and as little as will do, before one that was chosen is touched.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.compatibility import check_compatibility
from tonnage.fit.context import tell_too_long
from tonnage.fit.limits import longest_context, safe_context
from tonnage.fit.model import DoesNotFit, FitVerdict, IllegalParallelism, MemoryFit
from tonnage.fit.parallelism import legal_degrees
from tonnage.fit.question import FitQuestion, answer


class Setting(StrEnum):
    """What can be changed, by vLLM's flag; in the order of how much is lost."""

    UTILIZATION = "--gpu-memory-utilization"
    EXPERTS = "--enable-expert-parallel"
    SEQUENCES = "--max-num-seqs"
    BATCH = "--max-num-batched-tokens"
    CACHE_DTYPE = "--kv-cache-dtype"
    GRAPHS = "--enforce-eager"
    SPLIT = "--tensor-parallel-size"
    QUANTIZATION = "--quantization"
    CONTEXT = "--max-model-len"


MIN_SEQUENCES: Final = 16
"""Fewer requests in a step are no server any more; not proposed."""

MIN_BATCH: Final = 2048
"""vLLM's own default on small cards (vllm/engine/arg_utils.py get_batch_defaults)."""

MIN_CONTEXT: Final = 2048
"""Shorter contexts hold no conversation; not proposed."""

_ROUND_TOKENS: Final = 16
"""Proposed contexts are whole blocks of the KV cache."""

_MOST_SEQUENCES: Final = 1024
_MOST_TOKENS: Final = 16384
"""Where the search begins when vLLM's default applies, which is never more."""

_FEW_STEPS: Final = 2
"""More settings at a time are a heap of losses, worse than one that the user has to agree to."""

_UTILIZATIONS: Final = 10
"""How many hundredths below the greatest utilization that could do are tried."""

_FIELDS: Final = {
    Setting.UTILIZATION: "gpu_memory_utilization",
    Setting.EXPERTS: "enable_expert_parallel",
    Setting.SEQUENCES: "max_num_seqs",
    Setting.BATCH: "max_num_batched_tokens",
    Setting.CACHE_DTYPE: "kv_cache_dtype",
    Setting.GRAPHS: "enforce_eager",
    Setting.QUANTIZATION: "quantization",
    Setting.CONTEXT: "max_model_len",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One setting and its new value."""

    setting: Setting
    value: int | float | str | bool

    @property
    def argument(self) -> str:
        """As it is written on vLLM's command line."""
        return str(self.setting) if self.value is True else f"{self.setting} {self.value}"


@dataclass(frozen=True, slots=True)
class Change:
    """Steps that together make it fit, the question they lead to, and its answer."""

    steps: tuple[Step, ...]
    question: FitQuestion
    fit: MemoryFit


@dataclass(frozen=True, slots=True)
class Adviser:
    """Looks for changes of one question.

    `given` are the settings that the user chose, `allow` the rules that the user overrides,
    `max_gpus` the GPUs of a node.
    """

    question: FitQuestion
    given: Collection[Setting]
    allow: Collection[str]
    max_gpus: int
    catalog: Catalog

    def advise(self) -> tuple[Change, ...]:
        """The changes that make it fit, the smallest first; empty when nothing does."""
        order = self._by_loss()
        free = [setting for setting in order if setting not in self.given]
        chosen = [setting for setting in order if setting in self.given]
        changes = self._change_each(free) or self._change_several(free)
        changes += self._change_each(chosen)
        changes = tuple(sorted(changes, key=lambda change: len(change.steps) > _FEW_STEPS))
        return changes or self._change_several([*free, *chosen])

    def _by_loss(self) -> list[Setting]:
        """All settings, the one whose change is the smallest loss first."""
        order = list(Setting)
        if Setting.CONTEXT not in self.given:
            order.remove(Setting.CONTEXT)
            order.insert(order.index(Setting.BATCH) + 1, Setting.CONTEXT)
        return order

    def _change_each(self, order: Sequence[Setting]) -> tuple[Change, ...]:
        """The settings that help when they alone are changed, those that fit tightly last."""
        tried = (self._change_one(setting) for setting in order)
        changes = [change for change in tried if change is not None]
        return tuple(sorted(changes, key=lambda change: change.fit.tight))

    def _change_one(self, setting: Setting) -> Change | None:
        """The smallest change of one setting that helps; one with room to spare if there is one."""
        fitting = [change for step in self._steps(setting) if (change := self._try((step,)))]
        return next((change for change in fitting if not change.fit.tight), None) or next(
            iter(fitting), None
        )

    def _change_several(self, order: Sequence[Setting]) -> tuple[Change, ...]:
        """One change of several settings, as few and as little as will do.

        Each is taken as far as it goes until it fits. What vLLM or a rule refuses is passed over,
        and comes again at the end: another degree may have made it possible.
        """
        taken: tuple[Step, ...] = ()
        for setting in (*order, *order):
            if setting in {step.setting for step in taken}:
                continue
            further = (*taken, *list(self._steps(setting, taken))[-1:])
            if self._is_refused(self._after(further)):
                continue
            taken = further
            change = self._try(taken)
            if change is not None:
                return (self._as_little_as_will_do(change),)
        return ()

    def _as_little_as_will_do(self, change: Change) -> Change:
        """The change with each step left out or made smaller as far as it still fits.

        Anew until nothing can be spared: one step that goes may make another needless.
        """
        spared = change
        for step in reversed(change.steps):  # what loses most is spared first
            spared = self._spare(spared, step)
        return change if spared.steps == change.steps else self._as_little_as_will_do(spared)

    def _spare(self, change: Change, step: Step) -> Change:
        index = change.steps.index(step)
        before, after = change.steps[:index], change.steps[index + 1 :]
        lesser = ((less,) for less in self._steps(step.setting, (*before, *after)))
        for instead in ((), *lesser):
            found = self._try((*before, *instead, *after))
            if found is not None:
                return found
        return change

    def _try(self, steps: tuple[Step, ...]) -> Change | None:
        """The change, if it fits and nothing forbids it."""
        changed = self._after(steps)
        verdict = answer(changed, self.catalog)
        if not isinstance(verdict, MemoryFit) or self._is_refused(changed):
            return None
        return Change(steps, changed, verdict)

    def _after(self, steps: tuple[Step, ...]) -> FitQuestion:
        changed = self.question
        for step in steps:
            changed = apply(changed, step)
        return changed

    def _is_refused(self, question: FitQuestion) -> bool:
        """Whether it would not start, or not be allowed to, whatever the memory."""
        asked = question.checkpoint, question.accelerator, question.options
        if check_compatibility(*asked, self.allow, self.catalog) is not None:
            return True
        release = self.catalog.release(question.options.vllm_version)
        if tell_too_long(question.checkpoint.shape, question.options, release) is not None:
            return True
        return isinstance(answer(question, self.catalog), IllegalParallelism)

    def _steps(self, setting: Setting, before: tuple[Step, ...] = ()) -> Iterator[Step]:
        """Values of a setting that differ from the present one, the smallest change first."""
        for value in self._values(setting, before):
            yield Step(setting, value)

    def _values(
        self, setting: Setting, before: tuple[Step, ...]
    ) -> Iterator[int | float | str | bool]:
        question = self._after(before)
        options = question.options
        match setting:
            case Setting.UTILIZATION:
                yield from _utilizations(answer(question, self.catalog))
            case Setting.SEQUENCES:
                yield from _halved(options.max_num_seqs or _MOST_SEQUENCES + 1, MIN_SEQUENCES)
            case Setting.BATCH:
                yield from _halved(options.max_num_batched_tokens or _MOST_TOKENS + 1, MIN_BATCH)
            case Setting.CACHE_DTYPE if not options.kv_cache_dtype.startswith("fp8"):
                yield "fp8"
            case Setting.EXPERTS if not options.enable_expert_parallel:
                yield True
            case Setting.GRAPHS if not options.enforce_eager:
                yield True
            case Setting.SPLIT:
                yield from self._degrees()
            case Setting.QUANTIZATION if self._is_sixteen_bit():
                yield "fp8"
            case Setting.CONTEXT:
                yield from self._contexts(question)

    def _degrees(self) -> Iterator[int]:
        """Degrees that vLLM accepts, fewest GPUs first; smaller ones help where none is legal."""
        split = self.question.parallelism
        degrees = legal_degrees(
            self.question.checkpoint.shape,
            self.question.options,
            self.catalog.release(self.question.options.vllm_version),
            self.max_gpus // split.pipeline,
        )
        tensors = dict.fromkeys(found.tensor for found in degrees)
        return (tensor for tensor in tensors if tensor != split.tensor)

    def _is_sixteen_bit(self) -> bool:
        """Whether vLLM can quantise the weights while it loads them."""
        release = self.catalog.release(self.question.options.vllm_version)
        stored = self.question.checkpoint.shape.quantization
        asked = self.question.options.quantization
        return stored is None and asked == "auto" and "fp8" in release.online_quantization

    def _contexts(self, question: FitQuestion) -> Iterator[int]:
        """The longest context that fits, and the longest that fits for certain."""
        for length in (
            longest_context(question, self.catalog),
            safe_context(question, self.catalog),
        ):
            if MIN_CONTEXT <= length < question.options.max_model_len:
                yield length - length % _ROUND_TOKENS


def advise(
    question: FitQuestion,
    given: Collection[Setting],
    allow: Collection[str],
    max_gpus: int,
    catalog: Catalog,
) -> tuple[Change, ...]:
    """Changes that make a model fit that does not, the smallest first; empty when nothing does.

    See Adviser for the arguments; raises what `answer` raises.
    """
    return Adviser(question, given, allow, max_gpus, catalog).advise()


def apply(question: FitQuestion, step: Step) -> FitQuestion:
    """The question after one step."""
    if step.setting is Setting.SPLIT:
        split = replace(question.parallelism, tensor=int(step.value))
        return replace(question, parallelism=split)
    changed: dict[str, Any] = {_FIELDS[step.setting]: step.value}
    return replace(question, options=replace(question.options, **changed))


def _utilizations(verdict: FitVerdict) -> Iterator[float]:
    """Lower utilizations that leave more room beside the budget, where that is what lacks."""
    if not isinstance(verdict, DoesNotFit) or not verdict.beside_budget:
        return
    account = verdict.account
    most = account.budget_bytes - (verdict.needed_bytes - verdict.available_bytes)
    hundredths = most * 100 // account.device_bytes
    lower = range(hundredths, max(0, hundredths - _UTILIZATIONS), -1)
    yield from (each / 100 for each in lower)


def _halved(present: int, least: int) -> Iterator[int]:
    """Powers of two below the present value, down to the least."""
    value = least
    values = []
    while value < present:
        values.append(value)
        value *= 2
    return reversed(values)
