"""vLLM's Run:ai Model Streamer (--load-format=runai_streamer): its settings, and the memory of the
host that it takes.

Each process reads the files with many threads into a buffer, from which the tensors go to the GPU.
Sources: vLLM 0.32.0 model_executor/model_loader/runai_streamer_loader.py and config/vllm.py;
runai-model-streamer 0.15.7 file_streamer/requests_iterator.py and
distributed_streamer/distributed_streamer.py.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.vllm.flags import GivenFlag, engine_flags
from tonnage.engines.errors import ReservedArgumentError
from tonnage.engines.model_source import loaded_model
from tonnage.engines.quantity import GIB
from tonnage.engines.replica import Replica

_EXTRA_ARGS: Final = "spec.engine.vllm.extraArgs"
_FORMAT: Final = "--load-format"
_CONFIG: Final = "--model-loader-extra-config"
_AUTO: Final = "auto"
_STREAMER: Final = "runai_streamer"
_SHARDED: Final = "runai_streamer_sharded"
_FROM_OBJECT_STORE: Final = (_AUTO, _STREAMER, _SHARDED, "modelexpress")
_OBJECT_STORES: Final = ("s3://", "gs://", "az://")
_DAEMON_FORMAT: Final = "ipc_cache"

_DISTRIBUTED, _CONCURRENCY, _LIMIT = "distributed", "concurrency", "memory_limit"
_LIMIT_VARIABLE: Final = "RUNAI_STREAMER_MEMORY_LIMIT"
_DEFAULT_LIMIT_BYTES: Final = 40_000_000_000
_UNLIMITED: Final = -1
_NO_DIGITS: Final = 18
"""A number with more digits is none of bytes."""


@dataclass(frozen=True, slots=True)
class _Loader:
    """The flags that choose how weights are loaded; `config` is that of the loader."""

    format: str = _AUTO
    config: Mapping[str, Any] | None = None


def check_loader(spec: InferenceDeploymentSpec) -> None:
    """Refuse settings with which no pod would load its weights. Raises ReservedArgumentError."""
    model = loaded_model(spec, "").lower()
    load_format = _AUTO
    for given in engine_flags().read(spec.engine.vllm.extra_args):
        if given.name == _FORMAT:
            load_format = given.value
            _check_format(given, model)
    is_streamed = _is_streamed(load_format, model)
    for given in engine_flags().read(spec.engine.vllm.extra_args):
        if given.name == _CONFIG and is_streamed and load_format != _SHARDED:
            _check_config(given)


def staging_gib(replica: Replica) -> int:
    """Memory of a pod's node for the buffers of the streamer, in whole GiB; 0 without it.

    Every process reads all files, through a buffer of at most 40 GB by default. With `distributed`,
    the processes of a replica share the files, and each one has all of its part in memory. Files
    that were sharded before are read by one process each. A limit of 0 is the largest tensor, which
    the formula for other loaders covers.
    """
    loader = _read_loader(replica.spec)
    model = loaded_model(replica.spec, "").lower()
    if not _is_streamed(loader.format, model):
        return 0
    is_sharded, parallelism = loader.format == _SHARDED, replica.option.parallelism
    config = {} if is_sharded else loader.config or {}
    processes = parallelism.tensor * parallelism.pipeline
    is_shared = config.get(_DISTRIBUTED) is True and processes > 1
    part = replica.model_gib * GIB / (processes if is_shared or is_sharded else 1)
    limit = config.get(_LIMIT, _limit_of_variable(replica))
    if limit is None:
        limit = _UNLIMITED if is_shared else _DEFAULT_LIMIT_BYTES
    buffer = part if limit == _UNLIMITED else min(limit, part)
    return math.ceil(replica.gpus * buffer / GIB)


def _is_streamed(load_format: str, model: str) -> bool:
    return load_format in (_STREAMER, _SHARDED) or (
        load_format == _AUTO and model.startswith(_OBJECT_STORES)
    )


def _read_loader(spec: InferenceDeploymentSpec) -> _Loader:
    """The flags of an accepted spec; of a repeated one the last. vLLM joins the keys of
    `--flag.key=value`, and they replace a whole object (vllm/utils/argparse_utils.py)."""
    load_format, config, keys = _AUTO, None, dict[str, Any]()
    for given in engine_flags().read(spec.engine.vllm.extra_args):
        if given.name == _FORMAT:
            load_format = given.value
        elif given.name == _CONFIG and given.key:
            keys |= _parse(given) or {}
        elif given.name == _CONFIG:
            config = _parse(given)
    return _Loader(load_format, keys or config)


def _limit_of_variable(replica: Replica) -> int | None:
    """The limit that the pool or the user sets by a variable, which the flag overrides."""
    declared = replica.option.pool.declared
    variables = [*(declared.env if declared else []), *replica.spec.engine.vllm.env]
    values = [each.value or "" for each in variables if each.name == _LIMIT_VARIABLE]
    text = values[-1] if values else ""
    if text == str(_UNLIMITED):
        return _UNLIMITED
    return int(text) if text.isdecimal() and len(text) <= _NO_DIGITS else None


def _check_format(given: GivenFlag, model: str) -> None:
    if given.value == _DAEMON_FORMAT:
        raise _refuse(given, "pods run no `vllm preload`, which has the weights; remove it")
    if model.startswith(_OBJECT_STORES) and given.value not in _FROM_OBJECT_STORE:
        expected = ", ".join(_FROM_OBJECT_STORE)
        raise _refuse(given, f"the model is in an object store; expected one of {expected}")


def _check_config(given: GivenFlag) -> None:
    config = _parse(given)
    if config is None:
        raise _refuse(given, f"expected a JSON object with {_DISTRIBUTED}, {_CONCURRENCY} or"
                      f" {_LIMIT}")  # fmt: skip
    expected: dict[str, tuple[str, Callable[[object], bool]]] = {
        _DISTRIBUTED: ("true or false", lambda value: isinstance(value, bool)),
        _CONCURRENCY: ("a number of threads above 0", lambda value: _is_count(value, 1)),
        _LIMIT: ("bytes, 0 or -1", lambda value: _is_count(value, _UNLIMITED)),
    }
    for name, value in config.items():
        if name not in expected:
            raise _refuse(given, f"the streamer has no {name[:40]!r}; expected"
                          f" {', '.join(expected)}")  # fmt: skip
        words, is_valid = expected[name]
        if not is_valid(value):
            raise _refuse(given, f"expected {words} for {name}")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _parse(given: GivenFlag) -> Mapping[str, Any] | None:
    """The JSON object of the flag; None for anything else."""
    try:
        value = json.loads(given.value)
        config = {given.key: value} if given.key else value
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _refuse(given: GivenFlag, instead: str) -> ReservedArgumentError:
    value = "" if given.text.endswith(given.value) else given.value
    field = f"{_EXTRA_ARGS}[{given.index}]"
    return ReservedArgumentError(field, given.text, given.name, value, instead)
