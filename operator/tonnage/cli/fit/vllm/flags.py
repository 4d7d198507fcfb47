"""Parses the flags of vLLM on which memory and legality depend.

`tonnage fit` and the extra arguments of a batch case use them. A flag that the user left out is
absent from the result, so that vLLM's default for the version and device applies.
"""

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from tonnage.fit.flag_values import (
    DTYPES,
    admits_nothing,
    boolean,
    context_overrides,
    count,
    gibibytes,
    is_data_parallel,
    is_for_throughput,
    module_names,
    own_draft_tokens,
    rope_scaling,
    share,
    size,
    turns_graphs_off,
)
from tonnage.fit.model import EngineOptions

CACHE_DTYPES: Final = (
    "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla",
    "nvfp4_ds_mla", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc",
    "turboquant_3bit_nc", "ultraquant_4bit", "int4_per_token_head", "int8_per_token_head",
    "fp8_per_token_head", "nvfp4", "nvfp4_4over6",
)  # fmt: skip
"""vllm/config/cache.py CacheDType of 0.32.0."""

_OPTIONS: Final = frozenset(field.name for field in fields(EngineOptions)) - {"release"}


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add vLLM's flags; their destinations are the fields of EngineOptions."""
    _add_layout(parser)
    _add_precision(parser)
    _add_batch(parser)
    _add_memory(parser)
    _add_model_parts(parser)
    _add_adapters(parser)


def engine_settings(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of EngineOptions that the parsed arguments set."""
    settings = {name: value for name, value in parsed.items() if name in _OPTIONS}
    if parsed.get("graphs_off"):
        settings["enforce_eager"] = True
    if parsed.get("admits_nothing"):
        settings["language_model_only"] = True
    return settings


def _add_layout(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("layout", argument_default=argparse.SUPPRESS)
    for flag, short, purpose in (
        ("--tensor-parallel-size", "-tp", "GPUs that share each layer"),
        ("--pipeline-parallel-size", "-pp", "stages that the layers are divided into"),
        ("--data-parallel-size", "-dp", "copies of the engine; they share experts"),
    ):
        group.add_argument(flag, short, type=size, metavar="N", help=purpose)
    group.add_argument(
        "--enable-expert-parallel", "-ep", action="store_true", help="whole experts on each GPU"
    )


def _add_precision(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("precision", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        help="type that is computed in (default: the checkpoint's)",
    )
    group.add_argument(
        "--quantization", "-q", metavar="METHOD", help="method (default: the checkpoint's)"
    )
    group.add_argument(
        "--kv-cache-dtype",
        choices=CACHE_DTYPES,
        metavar="DTYPE",
        help="elements of the KV cache: auto, bfloat16, fp8, ... (default: auto)",
    )


def _add_batch(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "batch; vLLM's default depends on version and device", argument_default=argparse.SUPPRESS
    )
    group.add_argument(
        "--max-model-len",
        type=size,
        metavar="N",
        help="tokens of the longest request (default: what vLLM derives from the config)",
    )
    for flag, read, purpose in (
        ("--hf-overrides", context_overrides, "fields of config.json; only those of the context"),
        ("--rope-scaling", rope_scaling, "the same for the scaling of positions alone"),
    ):
        group.add_argument(flag, dest="context_overrides", type=read, metavar="JSON", help=purpose)
    group.add_argument("--max-num-seqs", type=size, metavar="N", help="requests of one step")
    group.add_argument(
        "--max-num-batched-tokens", type=size, metavar="N", help="tokens of one step"
    )
    group.add_argument(
        "--performance-mode",
        dest="throughput_batch",
        type=is_for_throughput,
        metavar="MODE",
        help="throughput doubles both defaults; balanced and interactivity do not",
    )
    group.add_argument(
        "--speculative-tokens",
        type=count,
        metavar="N",
        help="tokens drafted in a step by the model's own MTP layers",
    )
    group.add_argument(
        "--speculative-config",
        dest="speculative_tokens",
        type=own_draft_tokens,
        metavar="JSON",
        help="the same in the form that vLLM takes; separate draft models are not counted",
    )
    _add_switch(group, "--enable-chunked-prefill", "enable_chunked_prefill")
    group.add_argument("--enforce-eager", action="store_true", help="no CUDA or HIP graphs")
    for flag in ("--compilation-config", "-O", "-cc"):
        group.add_argument(flag, dest="graphs_off", type=turns_graphs_off, help=argparse.SUPPRESS)


def _add_memory(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--gpu-memory-utilization",
        type=share,
        metavar="X",
        help="share of the device's memory that vLLM may use (default: the version's)",
    )
    group.add_argument(
        "--kv-cache-memory-bytes",
        type=size,
        metavar="N",
        help="memory of the KV cache instead of what is left",
    )
    group.add_argument(
        "--cpu-offload-gb",
        dest="cpu_offload_bytes",
        type=gibibytes,
        metavar="GIB",
        help="weights kept in the host's memory",
    )
    group.add_argument("--block-size", type=size, metavar="N", help="tokens of one KV cache block")
    _add_switch(group, "--enable-prefix-caching", "enable_prefix_caching")
    group.add_argument(
        "--disable-hybrid-kv-cache-manager",
        dest="hybrid_kv_cache",
        action="store_false",
        help="window layers keep every token",
    )


def _add_model_parts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("multimodal models", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--language-model-only", action="store_true", help="load no vision or audio encoder"
    )
    group.add_argument(
        "--limit-mm-per-prompt",
        dest="admits_nothing",
        type=admits_nothing,
        metavar="JSON",
        help="a limit of 0 for every modality loads no encoder",
    )
    group.add_argument(
        "--mm-encoder-tp-mode",
        dest="data_parallel_encoder",
        type=is_data_parallel,
        metavar="weights|data",
        help="data: a whole encoder on every GPU",
    )


def _add_adapters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("LoRA adapters", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--enable-lora", action="store_true", help="buffers for adapters; the flags below imply it"
    )
    group.add_argument("--max-loras", type=size, metavar="N", help="adapters in one batch")
    group.add_argument("--max-lora-rank", type=size, metavar="N", help="largest rank of an adapter")
    group.add_argument(
        "--lora-target-modules",
        type=module_names,
        nargs="+",
        action=_Joined,
        metavar="NAME",
        help="layers with buffers, as qkv_proj,o_proj (default: all that vLLM can adapt)",
    )
    group.add_argument(
        "--fully-sharded-loras", action="store_true", help="GPUs share the whole of each buffer"
    )


class _Joined(argparse.Action):
    """Joins the tuples of all values to one."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, tuple(name for names in values for name in names))


def _add_switch(group: Any, flag: str, setting: str) -> None:
    """Add a flag with a --no- form; old releases also took a value."""
    group.add_argument(flag, dest=setting, type=boolean, nargs="?", const=True, metavar="BOOL")
    group.add_argument(
        flag.replace("--", "--no-", 1), dest=setting, action="store_false", help=argparse.SUPPRESS
    )
