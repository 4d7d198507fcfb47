"""Proposes the smallest changes that make a model fit.

The memory calculation judges every change before it is proposed. A smaller change costs the user
less, in this order:

1. A setting that the user left open comes before one that the user chose.
2. Among these: a lower memory utilization where graphs or the process's context do not fit outside
   vLLM's budget, whole experts on each GPU (costs nothing), buffers for adapters that GPUs share
   (some communication), fewer sequences of a step (the KV cache seldom holds as many), fewer tokens
   of a step (prefill is slower), an FP8 KV cache (a little precision), no graphs (decoding is
   slower), adapters for fewer layers (adapters of others have no effect), more GPUs (money), FP8
   weights (the model's answers
   change a little), a shorter context (vLLM refuses requests). If the user set no context, so that
   the model's own maximum applies, the context comes right after the batch.

A change that fits beyond the uncertainty goes before one that fits tightly; a change of many
settings comes last. For each setting the value is the nearest that fits: the most sequences, the
fewest GPUs, the longest context. If no single open setting helps, the adviser changes as few of
them as possible together, each as little as possible, before it touches one that the user chose.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.context import tell_too_long
from tonnage.fit.legality.compatibility import check_compatibility
from tonnage.fit.legality.parallelism import legal_degrees
from tonnage.fit.lora.targets import narrower_targets
from tonnage.fit.model import DoesNotFit, FitVerdict, IllegalParallelism, MemoryFit
from tonnage.fit.questions.limits import longest_context, safe_context
from tonnage.fit.questions.question import FitQuestion, answer


class Setting(StrEnum):
    """Settings that the advice may change, by vLLM's flag; the least costly change comes first."""

    UTILIZATION = "--gpu-memory-utilization"
    EXPERTS = "--enable-expert-parallel"
    ADAPTER_SHARDING = "--fully-sharded-loras"
    SEQUENCES = "--max-num-seqs"
    BATCH = "--max-num-batched-tokens"
    CACHE_DTYPE = "--kv-cache-dtype"
    GRAPHS = "--enforce-eager"
    ADAPTER_TARGETS = "--lora-target-modules"
    SPLIT = "--tensor-parallel-size"
    QUANTIZATION = "--quantization"
    CONTEXT = "--max-model-len"


MIN_SEQUENCES: Final = 16
"""Fewer sequences in a step are too few for a server: never proposed."""

MIN_BATCH: Final = 2048
"""vLLM's own default on small cards (vllm/engine/arg_utils.py get_batch_defaults)."""

MIN_CONTEXT: Final = 2048
"""Shorter contexts hold no conversation: never proposed."""

_ROUND_TOKENS: Final = 16
"""Proposed contexts are whole blocks of the KV cache."""

_MAX_SEQUENCES: Final = 1024
_MAX_TOKENS: Final = 16384
"""The search starts here where vLLM's default applies, which is never larger."""

_FEW_STEPS: Final = 2
"""A change of more settings costs more than one of a setting that the user chose."""

_UTILIZATIONS: Final = 10
"""How many utilizations to try, in steps of 0.01 down from the greatest that may fit."""

_FIELDS: Final = {
    Setting.UTILIZATION: "gpu_memory_utilization",
    Setting.EXPERTS: "enable_expert_parallel",
    Setting.ADAPTER_SHARDING: "fully_sharded_loras",
    Setting.ADAPTER_TARGETS: "lora_target_modules",
    Setting.SEQUENCES: "max_num_seqs",
    Setting.BATCH: "max_num_batched_tokens",
    Setting.CACHE_DTYPE: "kv_cache_dtype",
    Setting.GRAPHS: "enforce_eager",
    Setting.QUANTIZATION: "quantization",
    Setting.CONTEXT: "max_model_len",
}


SettingValue = int | float | str | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One setting and its new value."""

    setting: Setting
    value: SettingValue

    @property
    def argument(self) -> str:
        """The setting as an argument of vLLM's command line."""
        if self.value is True:
            return str(self.setting)
        value = " ".join(self.value) if isinstance(self.value, tuple) else self.value
        return f"{self.setting} {value}"


@dataclass(frozen=True, slots=True)
class Change:
    """Steps that together make the model fit, the changed question, and its answer."""

    steps: tuple[Step, ...]
    question: FitQuestion
    fit: MemoryFit


@dataclass(frozen=True, slots=True)
class Adviser:
    """Searches for changes of one question.

    `chosen` are the settings that the user chose, `allow` the rules that the user overrides,
    `max_gpus` the GPUs of a node.
    """

    question: FitQuestion
    chosen: Collection[Setting]
    allow: Collection[str]
    max_gpus: int
    catalog: Catalog

    def advise(self) -> tuple[Change, ...]:
        """The changes that make the model fit, the smallest first; empty when none does."""
        order = self._order_by_cost()
        open_settings = [setting for setting in order if setting not in self.chosen]
        chosen_settings = [setting for setting in order if setting in self.chosen]
        changes = self._change_each(open_settings) or self._change_several(open_settings)
        changes += self._change_each(chosen_settings)
        changes = tuple(sorted(changes, key=lambda change: len(change.steps) > _FEW_STEPS))
        return changes or self._change_several([*open_settings, *chosen_settings])

    def _order_by_cost(self) -> list[Setting]:
        """All settings, the one whose change costs the user least first."""
        order = list(Setting)
        if Setting.CONTEXT not in self.chosen:
            order.remove(Setting.CONTEXT)
            order.insert(order.index(Setting.BATCH) + 1, Setting.CONTEXT)
        return order

    def _change_each(self, order: Sequence[Setting]) -> tuple[Change, ...]:
        """Changes of a single setting that make the model fit, those that fit tightly last."""
        attempts = (self._change_one(setting) for setting in order)
        changes = [change for change in attempts if change is not None]
        return tuple(sorted(changes, key=lambda change: change.fit.tight))

    def _change_one(self, setting: Setting) -> Change | None:
        """The smallest change of one setting that fits, if possible not tightly."""
        fitting = [change for step in self._steps(setting) if (change := self._judge((step,)))]
        return next((change for change in fitting if not change.fit.tight), None) or next(
            iter(fitting), None
        )

    def _change_several(self, order: Sequence[Setting]) -> tuple[Change, ...]:
        """One change of several settings: as few as possible, each as little as possible.

        The loop takes the largest step of each setting until the model fits. It skips a step that
        vLLM or a rule refuses and retries it in a second pass: another tensor-parallel size may
        have made it legal.
        """
        steps: tuple[Step, ...] = ()
        for setting in (*order, *order):
            if setting in {step.setting for step in steps}:
                continue
            extended = (*steps, *list(self._steps(setting, steps))[-1:])
            if self._is_refused(self._after(extended)):
                continue
            steps = extended
            change = self._judge(steps)
            if change is not None:
                return (self._minimize(change),)
        return ()

    def _minimize(self, change: Change) -> Change:
        """The change without steps that it does not need, and with the smallest of the others.

        It repeats until nothing changes: dropping one step may make another unnecessary.
        """
        reduced = change
        for step in reversed(change.steps):  # the most costly step first
            reduced = self._reduce_step(reduced, step)
        return change if reduced.steps == change.steps else self._minimize(reduced)

    def _reduce_step(self, change: Change, step: Step) -> Change:
        index = change.steps.index(step)
        before, after = change.steps[:index], change.steps[index + 1 :]
        smaller_steps = ((smaller,) for smaller in self._steps(step.setting, (*before, *after)))
        for replacement in ((), *smaller_steps):
            reduced = self._judge((*before, *replacement, *after))
            if reduced is not None:
                return reduced
        return change

    def _judge(self, steps: tuple[Step, ...]) -> Change | None:
        """The change, None if the model does not fit or vLLM or a rule refuses it."""
        question = self._after(steps)
        verdict = answer(question, self.catalog)
        if not isinstance(verdict, MemoryFit) or self._is_refused(question):
            return None
        return Change(steps, question, verdict)

    def _after(self, steps: tuple[Step, ...]) -> FitQuestion:
        question = self.question
        for step in steps:
            question = apply(question, step)
        return question

    def _is_refused(self, question: FitQuestion) -> bool:
        """Whether vLLM or a compatibility rule refuses the start, whatever the memory."""
        checkpoint, options = question.checkpoint, question.options
        refusal = check_compatibility(
            checkpoint, question.accelerator, options, self.allow, self.catalog
        )
        if refusal is not None:
            return True
        release = self.catalog.release(options.release)
        if tell_too_long(checkpoint.shape, options, release) is not None:
            return True
        return isinstance(answer(question, self.catalog), IllegalParallelism)

    def _steps(self, setting: Setting, others: tuple[Step, ...] = ()) -> Iterator[Step]:
        """Steps to other values of a setting after `others`, the smallest change first."""
        for value in self._values(setting, others):
            yield Step(setting, value)

    def _values(self, setting: Setting, others: tuple[Step, ...]) -> Iterator[SettingValue]:
        question = self._after(others)
        options = question.options
        match setting:
            case Setting.UTILIZATION:
                yield from _utilizations(answer(question, self.catalog))
            case Setting.SEQUENCES:
                yield from _smaller_powers(
                    options.max_num_seqs or _MAX_SEQUENCES + 1, MIN_SEQUENCES
                )
            case Setting.BATCH:
                yield from _smaller_powers(
                    options.max_num_batched_tokens or _MAX_TOKENS + 1, MIN_BATCH
                )
            case Setting.CACHE_DTYPE if not options.kv_cache_dtype.startswith("fp8"):
                yield "fp8"
            case Setting.EXPERTS | Setting.GRAPHS if not getattr(options, _FIELDS[setting]):
                yield True
            case Setting.ADAPTER_SHARDING | Setting.ADAPTER_TARGETS if options.enable_lora:
                yield from _adapter_values(setting, question)
            case Setting.SPLIT:
                yield from self._tensor_parallel_sizes()
            case Setting.QUANTIZATION if self._can_quantize_online():
                yield "fp8"
            case Setting.CONTEXT:
                yield from self._contexts(question)

    def _tensor_parallel_sizes(self) -> Iterator[int]:
        """Other sizes that vLLM accepts, smallest first; the present one may be illegal."""
        parallelism = self.question.parallelism
        legal = legal_degrees(
            self.question.checkpoint.shape,
            self.question.options,
            self.catalog.release(self.question.options.release),
            self.max_gpus // (parallelism.pipeline * parallelism.data),
        )
        sizes = dict.fromkeys(other.tensor for other in legal)
        return (size for size in sizes if size != parallelism.tensor)

    def _can_quantize_online(self) -> bool:
        """Whether vLLM can quantise the weights to FP8 while it loads them."""
        options = self.question.options
        if self.question.checkpoint.shape.quantization or options.quantization != "auto":
            return False
        return "fp8" in self.catalog.release(options.release).online_quantization

    def _contexts(self, question: FitQuestion) -> Iterator[int]:
        """The longest context that fits, and the longest that does not fit tightly."""
        for length in (
            longest_context(question, self.catalog),
            safe_context(question, self.catalog),
        ):
            if MIN_CONTEXT <= length < question.options.max_model_len:
                yield length - length % _ROUND_TOKENS


def advise(
    question: FitQuestion,
    chosen: Collection[Setting],
    allow: Collection[str],
    max_gpus: int,
    catalog: Catalog,
) -> tuple[Change, ...]:
    """Changes that make the model fit, the smallest first; empty when none does.

    See Adviser for the arguments; raises what `answer` raises.
    """
    return Adviser(question, chosen, allow, max_gpus, catalog).advise()


def apply(question: FitQuestion, step: Step) -> FitQuestion:
    """The question after one step."""
    if step.setting is Setting.SPLIT and isinstance(step.value, int):
        parallelism = replace(question.parallelism, tensor=step.value)
        return replace(question, parallelism=parallelism)
    changed: dict[str, Any] = {_FIELDS[step.setting]: step.value}
    return replace(question, options=replace(question.options, **changed))


def _adapter_values(setting: Setting, question: FitQuestion) -> Iterator[SettingValue]:
    options = question.options
    if setting is Setting.ADAPTER_TARGETS:
        yield from narrower_targets(question.checkpoint.shape, options.lora_target_modules)
    elif question.parallelism.tensor > 1 and not options.fully_sharded_loras:
        yield True


def _utilizations(verdict: FitVerdict) -> Iterator[float]:
    """Lower utilizations, if the memory outside the budget is what does not suffice."""
    if not isinstance(verdict, DoesNotFit) or not verdict.outside_budget:
        return
    account = verdict.account
    max_budget = account.budget_bytes - (verdict.needed_bytes - verdict.available_bytes)
    max_percent = max_budget * 100 // account.device_bytes
    percents = range(max_percent, max(0, max_percent - _UTILIZATIONS), -1)
    yield from (percent / 100 for percent in percents)


def _smaller_powers(present: int, least: int) -> Iterator[int]:
    """`least` times powers of two below the present value, the largest first."""
    value = least
    values = []
    while value < present:
        values.append(value)
        value *= 2
    return reversed(values)
