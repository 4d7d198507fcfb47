"""What follows for spec.lora from the files of its adapters: rank and layers of the buffers, and
what contradicts them."""

from collections.abc import Sequence

from tonnage.api.model import Adapter, Lora
from tonnage.catalog.vllm.lora import load_lora_support
from tonnage.catalog.vllm.releases import parse_version
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.lora.targets import buffer_layers
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError

AdapterFiles = Sequence[AdapterFacts | None]
"""What was read of each adapter of a spec, in their order; None for one that was not read."""


def with_buffer_rank(lora: Lora, files: AdapterFiles) -> Lora:
    """The same with `maxRank`, where the files have the ranks that the spec leaves out.

    What gives `maxRank` or all ranks stays as it is, and so does what leaves out the rank of an
    adapter that was not read. Raises InvalidOptionError for a rank that contradicts the file or is
    above what vLLM reserves.
    """
    for index, (adapter, file) in enumerate(zip(lora.adapters, files, strict=True)):
        if file is not None:
            _check_rank(lora, index, adapter, file)
    ranks = [
        adapter.rank or (file.rank if file else None)
        for adapter, file in zip(lora.adapters, files, strict=True)
    ]
    known = [rank for rank in ranks if rank is not None]
    is_given = lora.max_rank is not None or all(adapter.rank for adapter in lora.adapters)
    if is_given or len(known) < len(ranks):
        return lora
    largest = max(known)
    rank = next(rank for rank in load_lora_support().ranks if rank >= largest)
    return lora.model_copy(update={"max_rank": rank})


def with_target_modules(
    lora: Lora, files: AdapterFiles, shape: ModelShape, options: EngineOptions
) -> Lora:
    """The same with `targetModules`, where the spec leaves them out: the layers that an adapter has
    weights for.

    Without them vLLM reserves buffers in all layers, also of experts that no adapter changes. They
    stay out where a file names no layers or one that vLLM has no buffers for, where one was not
    read, where the adapters of running pods change, and for releases of vLLM that may not have the
    setting.
    """
    since = parse_version(load_lora_support().target_modules_since)
    is_older = parse_version(options.release) < since
    if lora.target_modules or lora.is_live or is_older:
        return lora
    names = [name for file in files if file is not None for name in file.target_modules]
    if not files or not all(file is not None and file.target_modules for file in files):
        return lora
    targets = buffer_layers(shape, names)
    return lora if targets is None else lora.model_copy(update={"target_modules": list(targets)})


def check_base_model(lora: Lora, files: AdapterFiles, hidden_size: int, model: str) -> None:
    """Refuse an adapter whose tensors do not fit the layers of the model.

    The name of the base model decides nothing: it may be a path, or another name of the same
    weights, and adapters also run on other models of these shapes. Raises InvalidOptionError.
    """
    for index, (adapter, file) in enumerate(zip(lora.adapters, files, strict=True)):
        if file is None or file.hidden_size in (None, hidden_size):
            continue
        raise InvalidOptionError(
            f"spec.lora.adapters[{index}].source: adapter {adapter.name} was trained on"
            f" {file.base_model or 'another model'} of hidden size {file.hidden_size}, but {model}"
            f" has {hidden_size}; use an adapter of {model}"
        )


def check_patterns(lora: Lora, files: AdapterFiles, options: EngineOptions) -> None:
    """Refuse an adapter whose layers an older vLLM would scale wrongly, without an error. Raises
    InvalidOptionError."""
    since = load_lora_support().patterns_since
    if parse_version(options.release) >= parse_version(since):
        return
    for index, (adapter, file) in enumerate(zip(lora.adapters, files, strict=True)):
        if file is not None and file.has_patterns:
            raise InvalidOptionError(
                f"spec.lora.adapters[{index}].source: adapter {adapter.name} has rank_pattern or"
                f" alpha_pattern, which vLLM {options.release} ignores; use {since} or newer"
            )


def _check_rank(lora: Lora, index: int, adapter: Adapter, file: AdapterFacts) -> None:
    field, limit = f"spec.lora.adapters[{index}]", max(load_lora_support().ranks)
    if file.rank > limit:
        raise InvalidOptionError(
            f"{field}.source: adapter {adapter.name} has rank {file.rank}: expected at most"
            f" {limit}, the largest that vLLM loads"
        )
    if adapter.rank is not None and adapter.rank < file.rank:
        raise InvalidOptionError(
            f"{field}.rank: {adapter.rank} is below rank {file.rank} of adapter {adapter.name}, by"
            " its adapter_config.json; raise rank, or leave it out"
        )
    if lora.max_rank is not None and file.rank > lora.max_rank:
        raise InvalidOptionError(
            f"spec.lora.maxRank: {lora.max_rank} is below rank {file.rank} of adapter"
            f" {adapter.name}; raise maxRank, or leave it out"
        )
