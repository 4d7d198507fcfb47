"""Parses the flags that SGLang has by other names than vLLM, and refuses those of the other engine.

Where both engines are judged, each has its own flags, as `spec.engine.vllm` and
`spec.engine.sglang` have their settings; adapters, layouts and overrides of config.json are not
calculated for SGLang, and leave the model to vLLM.

Source of the names: SGLang 0.5.23, sglang/srt/server_args.py.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tonnage.catalog.sglang_arguments import load_sglang_arguments
from tonnage.cli.errors import InputError
from tonnage.cli.fit.vllm.flags import add_engine_arguments
from tonnage.fit.flag_values import partial_share, size

_RENAMED: Final = {
    "context_length": "max_model_len",
    "mem_fraction_static": "gpu_memory_utilization",
    "chunked_prefill_size": "max_num_batched_tokens",
    "max_running_requests": "max_num_seqs",
}
"""The fields of EngineOptions by the destinations of SGLang's flags."""

_SHARED: Final = frozenset(
    {"tensor_parallel_size", "pipeline_parallel_size", "quantization", "kv_cache_dtype"}
)
"""Destinations of flags that both engines have, and that are calculated for both."""

_UNCALCULATED: Final = {
    "data_parallel_size": "--dp-size",
    "enable_expert_parallel": "--ep-size",
    "dtype": "--dtype",
    "enforce_eager": "--cuda-graph-backend-decode",
    "context_overrides": "--json-model-override-args",
    "cpu_offload_bytes": "--cpu-offload-gb",
    "block_size": "--page-size",
    "speculative_tokens": "--speculative-num-draft-tokens",
    "enable_lora": "--enable-lora",
    "max_loras": "--max-loras-per-batch",
    "max_lora_rank": "--max-lora-rank",
    "lora_target_modules": "--lora-target-modules",
}
"""SGLang's counterparts of flags of vLLM that the calculation does not cover for SGLang."""

_OF_THE_REPLICA: Final = frozenset(
    {
        "data_parallel_size",
        "context_overrides",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
        "lora_target_modules",
    }
)
"""Destinations of flags that say what a replica serves or how it is divided."""

_AUTO: Final = "auto"

_OF_BOTH: Final = _SHARED | _OF_THE_REPLICA | {"max_model_len"}
"""Destinations of flags of vLLM that count for SGLang, or keep it from the model."""


def add_sglang_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of SGLang that vLLM has by other names."""
    group = parser.add_argument_group(
        "SGLang, with --engine sglang; defaults as SGLang derives them",
        argument_default=argparse.SUPPRESS,
    )
    group.add_argument(
        "--context-length", type=size, metavar="N", help="tokens of the longest request"
    )
    group.add_argument(
        "--mem-fraction-static",
        type=partial_share,
        metavar="X",
        help="share of the free memory for weights and KV cache",
    )
    group.add_argument(
        "--chunked-prefill-size", type=size, metavar="N", help="tokens of a prefill chunk"
    )
    group.add_argument(
        "--max-running-requests", type=size, metavar="N", help="requests that run at a time"
    )


def sglang_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of EngineOptions that the flags set.

    Raises InputError naming a flag that only vLLM has or that is not calculated for SGLang.
    """
    given = vars(options)
    for action in _vllm_actions():
        if action.dest in given and action.dest not in _SHARED:
            raise InputError(_refusal(action.dest, _typed_name(action.dest, options)))
    for flag, value in (
        ("--vllm-version", options.vllm_version),
        ("--allow", options.allow),
        ("--extra-args", options.extra_args),
    ):
        if value:
            raise InputError(f"{flag} is of vLLM: leave it out with --engine sglang")
    _check_quantization(given.get("quantization"))
    shared = {name: given[name] for name in _SHARED & given.keys()}
    return shared | {field: given[name] for name, field in _RENAMED.items() if name in given}


def _check_quantization(method: str | None) -> None:
    choices = load_sglang_arguments().arguments["quantization"].choices
    if method not in {None, _AUTO, *choices}:
        known = ", ".join(sorted(choices))
        raise InputError(
            f"--quantization {method}: SGLang has no such method; expected {_AUTO}, {known}"
        )


def options_for_vllm(options: argparse.Namespace, extra: Mapping[str, Any]) -> argparse.Namespace:
    """The flags without those of SGLang, whose length of the context is that of vLLM; `extra` are
    the settings in vLLM's extra arguments.

    Raises InputError for two lengths.
    """
    given = {name: value for name, value in vars(options).items() if name not in _RENAMED}
    length = vars(options).get("context_length")
    if length is not None:
        if {**extra, **given}.get("max_model_len", length) != length:
            raise InputError(
                "--context-length and --max-model-len are the same limit: give one of them"
            )
        given["max_model_len"] = length
    return argparse.Namespace(**{**given, "engine": "vllm"})


def options_for_sglang(options: argparse.Namespace, extra: Mapping[str, Any]) -> argparse.Namespace:
    """The flags without those that set how vLLM runs. What counts for both engines counts in vLLM's
    extra arguments, too, whose settings are `extra`."""
    of_both = {name: value for name, value in extra.items() if name in _OF_BOTH}
    given = {
        name: value
        for name, value in {**of_both, **vars(options)}.items()
        if name in _OF_BOTH or name not in _vllm_destinations()
    }
    length = given.pop("max_model_len", None)
    if length is not None:
        given["context_length"] = length
    if given.get("kv_cache_dtype") == "fp8":
        given["kv_cache_dtype"] = "fp8_e4m3"  # as in a spec
    of_vllm: dict[str, Any] = {"vllm_version": None, "allow": [], "extra_args": ""}
    return argparse.Namespace(**{**given, **of_vllm, "engine": "sglang"})


def refuse_in_extra_arguments(arguments: Iterable[str]) -> None:
    """Raises InputError naming a flag of SGLang among the extra arguments, which are vLLM's."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        counterpart = _RENAMED.get(flag.removeprefix("--").replace("-", "_"))
        if flag.startswith("--") and counterpart is not None:
            raise InputError(
                f"--extra-args: {flag} is a flag of SGLang, and extra arguments are vLLM's: give"
                f" {_flag_of(counterpart)} there, or {flag} outside of them with --engine sglang"
                " or auto"
            )


def refuse_sglang_flags(options: argparse.Namespace) -> None:
    """Raises InputError naming a flag of SGLang, and vLLM's counterpart."""
    for name, field in _RENAMED.items():
        if name in vars(options):
            raise InputError(
                f"{_flag_of(name)} is a flag of SGLang: give {_flag_of(field)}, or --engine sglang"
            )


def _refusal(dest: str, flag: str) -> str:
    """What to give instead of a flag of vLLM."""
    counterparts = {field: name for name, field in _RENAMED.items()}
    if dest in counterparts:
        return f"{flag} is a flag of vLLM: with --engine sglang give {_flag_of(counterparts[dest])}"
    if dest in _UNCALCULATED:
        named = "" if _UNCALCULATED[dest] == flag else f" ({_UNCALCULATED[dest]} of SGLang)"
        return (
            f"{flag}{named} is not calculated for SGLang yet: leave it out, or give --engine vllm"
        )
    return f"{flag} is a flag of vLLM only: leave it out with --engine sglang"


def _typed_name(dest: str, options: argparse.Namespace) -> str:
    """The flag as the user typed it; the first of the destination's where it was abbreviated."""
    names = [name for one in _vllm_actions() if one.dest == dest for name in one.option_strings]
    typed = {argument.partition("=")[0] for argument in options.typed}
    return next((name for name in names if name in typed), names[0])


def _vllm_actions() -> Iterator[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    add_engine_arguments(parser)
    # argparse has no public list of a parser's arguments.
    return iter(parser._actions)


def _vllm_destinations() -> frozenset[str]:
    return frozenset(action.dest for action in _vllm_actions())


def _flag_of(dest: str) -> str:
    return "--" + dest.replace("_", "-")
