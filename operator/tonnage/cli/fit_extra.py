"""Further arguments and environment variables of a server, as logs and command lines hold them.

What memory depends on is read; what changes memory though nothing here calculates it is told.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, NoReturn

from tonnage.cli.fit_arguments import add_engine_arguments

_GRAPHS_IN_BUDGET: Final = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"

_NOT_COUNTED: Final = {
    "--enable-lora": "adapters",
    "--max-lora": "adapters",
    "--max-cpu-loras": "adapters",
    "--num-gpu-blocks-override": "another number of blocks in the KV cache",
    "--decode-context-parallel-size": "a KV cache that ranks share out",
    "-dcp": "a KV cache that ranks share out",
    "--prefill-context-parallel-size": "a KV cache that ranks share out",
    "--hf-overrides": "another config.json",
    "--hf-config-path": "another config.json",
    "--rope-scaling": "another length of the context",
    "--disable-sliding-window": "a context no longer than the window",
    "--mm-processor-kwargs": "other sizes of images and videos",
    "--mamba-": "other states of linear layers",
    "--enable-eplb": "copies of experts",
    "--num-redundant-experts": "copies of experts",
    "--eplb-config": "copies of experts",
    "--num-speculative-tokens": "a draft model",
    "--speculative-model": "a draft model",
    "--offload-": "weights that stay in the host's memory",
    "--enable-dbo": "two batches at a time",
    "--attention-backend": "another attention backend's buffers",
    "VLLM_ATTENTION_BACKEND=": "another attention backend's buffers",
    "VLLM_USE_V1=": "another engine",
    "VLLM_USE_V2_MODEL_RUNNER=": "another model runner",
    "VLLM_PP_LAYER_PARTITION=": "another division of the layers into stages",
    "VLLM_FUSED_MOE_CHUNK_SIZE=": "another size of the experts' buffers",
    "VLLM_ROCM_MOE_PADDING=": "other padding of weights",
    "VLLM_ROCM_FP8_PADDING=": "other padding of weights",
    _GRAPHS_IN_BUDGET + "=": "graphs in the budget of a release that leaves them out by itself",
}
"""How arguments begin that change memory and are not calculated, and what they bring."""

_STEMS: Final = (
    "--tensor-parallel", "--pipeline-parallel", "--data-parallel-siz", "--enable-expert",
    "--dtype", "--quantization", "--kv-cache", "--max-model", "--max-num", "--max-seq",
    "--speculative", "--performance-mode", "--enable-chunked", "--enable-prefix", "--enforce-eager",
    "--compilation-config", "--gpu-memory", "--cpu-offload", "--block-size", "--language-model",
    "--limit-mm", "--mm-encoder", "--disable-hybrid",
)  # fmt: skip
"""How the flags begin that are read."""

_ABBREVIATED: Final = 5
"""argparse takes a unique beginning of a flag; shorter ones say nothing."""


class BadArgumentError(ValueError):
    """A flag that cannot be: names the flag, its value and what was expected."""


@dataclass(frozen=True, slots=True)
class ExtraArguments:
    """What arguments of `vllm serve` say.

    `settings` by the names of the parser, `stated` every argument with its value and every
    NAME=value as they were given, `notes` what of them was passed over.
    """

    settings: Mapping[str, Any]
    stated: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def parse_extra_arguments(arguments: Sequence[str]) -> ExtraArguments:
    """Read arguments and environment variables of a vLLM server. Raises BadArgumentError."""
    if not arguments:
        return ExtraArguments({})
    spelled = [_spelled(argument) for argument in arguments]
    parsed, others = _parser().parse_known_args(spelled)
    settings = vars(parsed)
    if f"{_GRAPHS_IN_BUDGET}=0" in spelled:
        settings["graphs_in_budget"] = False
        others.remove(f"{_GRAPHS_IN_BUDGET}=0")
    notes = [*_passed_over(others)]
    if settings.get("speculative_tokens") == 0:
        notes.append("speculative decoding was ignored: a draft model cannot be calculated")
    return ExtraArguments(settings, frozenset(_stated(spelled)), tuple(notes))


def _stated(arguments: Sequence[str]) -> Iterator[str]:
    """Each argument, and those in two words in one."""
    for argument, following in pairwise([*arguments, ""]):
        yield argument
        if argument.startswith("-") and following and "=" not in argument:
            yield f"{argument}={following}"


def _passed_over(others: Sequence[str]) -> Iterator[str]:
    """What was not read although memory may depend on it."""
    for written in others:
        name = written.partition("=")[0][:80]
        brings = next((what for flag, what in _NOT_COUNTED.items() if written.startswith(flag)), "")
        if brings:
            yield f"{name} was ignored: {brings} cannot be calculated"
        elif _resembles_a_flag(name):
            yield f"{name} is not known and was ignored"


def _resembles_a_flag(name: str) -> bool:
    """Whether it begins like a flag that memory depends on, or is the beginning of one."""
    if not name.startswith("--") or len(name) < _ABBREVIATED:
        return False
    return any(name.startswith(stem) or stem.startswith(name) for stem in _STEMS)


@cache
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_engine_arguments(parser)
    return parser


def _spelled(argument: str) -> str:
    """The flag as vLLM documents it; underscores count as dashes (FlexibleArgumentParser)."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise BadArgumentError(message)
