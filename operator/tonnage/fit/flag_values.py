"""Parses values of vLLM's flags as vLLM does.

Each function raises ArgumentTypeError naming the text and the expected form.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from tonnage.api.text import read_json_object

MAX_COUNT: Final = 2**53
"""Largest accepted number; the limit of integers that JSON readers hold exactly."""

DTYPES: Final = ("auto", "half", "float16", "bfloat16", "float", "float32")
"""vllm/config/model.py ModelDType."""

_MODELLESS_METHODS: Final = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods of speculative decoding that guess tokens from the text, without weights
(vllm/config/speculative.py)."""

_VISION_INPUTS: Final = frozenset({"image", "video"})

_CONTEXT_FIELDS: Final = frozenset(
    {
        "rope_scaling", "rope_parameters", "rope_theta", "max_position_embeddings",
        "model_max_length", "original_max_position_embeddings",
    }
)  # fmt: skip
"""Fields of config.json that change the length of the context, and nothing else of memory."""

_ENCODER_MODES: Final = ("weights", "data")
_PERFORMANCE_MODES: Final = ("balanced", "interactivity", "throughput")
_GIB: Final = 2**30
_MULTIPLIERS: Final[Mapping[str, int]] = {
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SIZE: Final = re.compile(
    r"(?P<number>\d{1,20}(?:\.\d{1,9})?)(?:(?P<letter>[kmgtKMGT])(?P<unit>iB?|B)?)?"
)


def size(text: str) -> int:
    """A positive number as vLLM reads it: `65536`, `64k` (thousands), `64K` (1024s), `20Gi`.

    Source: vllm/utils/argparse_utils.py human_readable_int. Quantities of bytes such as 79.2GiB
    and 80GB (10^9 bytes) are also accepted, rounded down to whole bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no size: expected 1 to 2**53, such as 65536, 64k or 20GiB"
        )
    number, letter, unit = match.groups()
    value = int(Decimal(number) * (_multiplier(letter, unit) if letter else 1))
    if not 0 < value <= MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is out of range: expected 1 to 2**53")
    return value


def byte_size(text: str) -> int:
    """A size in bytes: `141107412992`, `79.2GiB` or `80GB`.

    A letter alone is refused: 80G are 80 * 10^9 bytes in Kubernetes and 80 * 2^30 in vLLM.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is not None and match["letter"] and not match["unit"]:
        quantity = match["number"] + match["letter"].upper()
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is ambiguous: expected {quantity}B (powers of 1000) or {quantity}iB "
            "(powers of 1024)"
        )
    return size(text)


def _multiplier(letter: str, unit: str | None) -> int:
    """The factor of a letter with or without its unit, as in k, KiB and GB."""
    if unit is None:
        return _MULTIPLIERS[letter]
    return _MULTIPLIERS[letter.lower() if unit == "B" else letter.upper()]


def count(text: str) -> int:
    """A size or 0."""
    return 0 if text.strip() == "0" else size(text)


def share(text: str) -> float:
    """A share above 0, at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a share above 0, at most 1")
    return value


def partial_share(text: str) -> float:
    """A share above 0, below 1."""
    value = share(text)
    if value == 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a share below 1")
    return value


def gibibytes(text: str) -> int:
    """Bytes of a number of GiB."""
    try:
        gib = float(text)
    except ValueError:
        gib = -1.0
    if not 0 <= gib <= MAX_COUNT / _GIB:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a number of GiB")
    return int(gib * _GIB)


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected true or false")
    return text.lower() == "true"


def dtype(text: str) -> str:
    """A name of vLLM's for the type that is computed in."""
    if text not in DTYPES:
        expected = ", ".join(DTYPES)
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected one of {expected}")
    return text


def own_draft_tokens(text: str) -> int:
    """Tokens that are drafted without other weights than the model's own MTP layers; 0 with a
    separate draft model."""
    config = _json_object(text)
    method, tokens = config.get("method"), config.get("num_speculative_tokens", 1)
    if not isinstance(tokens, int) or not 0 <= tokens <= MAX_COUNT:
        raise argparse.ArgumentTypeError("num_speculative_tokens: expected a number of tokens")
    if not isinstance(method, str):
        return 0
    is_own = method.endswith("mtp") and "model" not in config
    return tokens if is_own or method in _MODELLESS_METHODS else 0


def context_overrides(text: str) -> str:
    """The overrides of config.json as JSON where they only change the length of the context, also
    below `text_config`; else "", because the config is another one."""
    overrides = _json_object(text)
    nested = overrides.pop("text_config", {})
    if not isinstance(nested, dict) or overrides.keys() & nested.keys():
        return ""
    overrides |= nested
    return json.dumps(overrides, sort_keys=True) if overrides.keys() <= _CONTEXT_FIELDS else ""


def rope_scaling(text: str) -> str:
    """The value of --rope-scaling as an override of config.json."""
    return json.dumps({"rope_scaling": _json_object(text)}, sort_keys=True)


def turns_graphs_off(text: str) -> bool:
    """Whether a compilation config or -O level turns graphs off.

    Source: vllm/config/compilation.py CUDAGraphMode; level 0 captures none.
    """
    if not text.startswith("{"):
        return text == "0"
    config = _json_object(text)
    mode = config.get("cudagraph_mode")
    return str(mode).upper() == "NONE" or config.get("level") == 0 or config.get("mode") == 0


def admits_nothing(text: str) -> bool:
    """Whether the limits admit no image, video or audio; old releases wrote image=0,video=0.

    vLLM loads an encoder for a kind of input without a limit (vllm/config/multimodal.py
    get_limit_per_prompt), so images and videos both need one; models with audio are to name it too.
    """
    if text.startswith("{"):
        limits = {kind: str(limit) for kind, limit in _json_object(text).items()}
    else:
        items = (item.rpartition("=") for item in text.split(","))
        limits = {kind: limit for kind, _, limit in items}
    return limits.keys() >= _VISION_INPUTS and set(limits.values()) == {"0"}


def is_data_parallel(text: str) -> bool:
    """Whether each GPU holds a whole encoder (--mm-encoder-tp-mode)."""
    return _one_of(text, _ENCODER_MODES) == "data"


def is_for_throughput(text: str) -> bool:
    """Whether the default batch is doubled (vllm/engine/arg_utils.py --performance-mode)."""
    return _one_of(text, _PERFORMANCE_MODES) == "throughput"


def _one_of(text: str, values: Sequence[str]) -> str:
    if text not in values:
        expected = ", ".join(values)
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected one of {expected}")
    return text


def module_names(text: str) -> tuple[str, ...]:
    """Names of layers between spaces or commas, each once, sorted: their order has no meaning."""
    names = sorted({name for name in re.split(r"[\s,]+", text) if name})
    invalid = next((name for name in names if not re.fullmatch(r"[\w.]{1,128}", name)), None)
    if not names or invalid is not None:
        raise argparse.ArgumentTypeError(
            f"{(invalid or text)[:40]!r}: expected names of layers such as qkv_proj"
        )
    return tuple(names)


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "context_overrides": context_overrides,
    "draft_tokens": own_draft_tokens,
    "dtype": dtype,
    "gibibytes": gibibytes,
    "graphs_off": turns_graphs_off,
    "module_names": module_names,
    "no_images": admits_nothing,
    "rope_scaling": rope_scaling,
    "size": size,
}
"""By the names in engine_flags.yaml. A false result sets no option."""


def _json_object(text: str) -> dict[str, Any]:
    parsed = read_json_object(text)
    if parsed is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: expected a JSON object")
    return parsed
