"""The facts of a Hub's model, or of adapters, as one short text, so that a restart needs no Hub.

The text holds config.json (of adapters, adapter_config.json) as it is in the repository, and the
table of tensors: another version of the operator may compute something else from them. A tenant may
edit the text and lie about the model, as with inline facts, so it is read like any foreign input.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from tonnage.api.model import HuggingFaceSource
from tonnage.api.packed import pack, unpack
from tonnage.checkpoint.adapter import AdapterFacts, parse_adapter
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import MAX_TENSOR_BYTES, parse_table
from tonnage.checkpoint.shape import parse_config_text
from tonnage.checkpoint.tensor_table import dump_table

_DECODED_TEXTS: Final = 256
"""Decoded texts in memory, some KiB each."""

_MAX_ADAPTERS: Final = 128
"""As many as a spec has (spec.lora.adapters)."""

_ADAPTER_FIELDS: Final = frozenset({"repo", "revision", "commit", "config"})
_FIELDS: Final = frozenset({"repo", "revision", "commit", "config", "tensors", "weightsBytes"})


def encode_facts(repo: str, revision: str, config: bytes, checkpoint: Checkpoint) -> str | None:
    """Return the facts of `checkpoint`, which was made of this config.json, as a text. None where
    they are too large, or where the table of tensors was too large for the checkpoint."""
    if checkpoint.tensors is None and checkpoint.bytes_by_dtype:
        return None
    facts = {
        "repo": repo,
        "revision": revision,
        "commit": checkpoint.revision,
        "config": config.decode("utf-8-sig", errors="replace"),
        "tensors": None if checkpoint.tensors is None else dump_table(checkpoint.tensors),
        "weightsBytes": checkpoint.weights_bytes,
    }
    return pack(facts)


def decode_facts(text: str, repo: str, revision: str) -> Checkpoint | None:
    """Return the checkpoint of the facts; None where they are of another model, or unreadable."""
    decoded = _decode(text)
    if decoded is None or decoded[:2] != (repo, revision):
        return None
    return decoded[2]


@lru_cache(_DECODED_TEXTS)
def _decode(text: str) -> tuple[str, str, Checkpoint] | None:
    """Decode a text once for all reconciles of its object."""
    try:
        return _read(unpack(text), text)
    except CheckpointError:
        return None


def _read(facts: object, text: str) -> tuple[str, str, Checkpoint]:
    if not isinstance(facts, dict) or facts.keys() != _FIELDS:
        raise CheckpointError(f"the facts have other fields than {', '.join(sorted(_FIELDS))}")
    repo, revision, commit = (_read_text(facts[name]) for name in ("repo", "revision", "commit"))
    shape = parse_config_text(_read_text(facts["config"]))
    table = None if facts["tensors"] is None else parse_table(_read_text(facts["tensors"]))
    size = facts["weightsBytes"]
    if size is not None and (type(size) is not int or not 0 <= size <= MAX_TENSOR_BYTES):
        raise CheckpointError(f"weightsBytes is no number from 0 to {MAX_TENSOR_BYTES}")
    checkpoint = make_checkpoint(shape, table, weights_bytes=size, revision=commit)
    return repo, revision, checkpoint.with_kept_facts(text)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"a {type(value).__name__} stands where a text is expected")
    return value


def encode_adapters(read: Iterable[tuple[HuggingFaceSource, AdapterFacts]]) -> str | None:
    """Return adapter_config.json of all adapters, with repository and commit, as a text. None
    where there are none, or they are too large."""
    facts = {
        (source.repo, source.revision): {
            "repo": source.repo,
            "revision": source.revision,
            "commit": adapter.revision,
            "config": adapter.config,
        }
        for source, adapter in read
        if adapter.config is not None and adapter.revision is not None
    }
    return pack([facts[key] for key in sorted(facts)]) if facts else None


@lru_cache(_DECODED_TEXTS)
def decode_adapters(text: str) -> Mapping[tuple[str, str], AdapterFacts]:
    """Return the adapters of a text by repository and revision, without unreadable ones. They
    have no tensors."""
    facts = unpack(text)
    if not isinstance(facts, list) or len(facts) > _MAX_ADAPTERS:
        return {}
    adapters = {}
    for one in facts:
        try:
            repo, revision, adapter = _read_adapter(one)
        except CheckpointError:
            continue
        adapters[repo, revision] = adapter
    return adapters


def _read_adapter(facts: object) -> tuple[str, str, AdapterFacts]:
    if not isinstance(facts, dict) or facts.keys() != _ADAPTER_FIELDS:
        names = ", ".join(sorted(_ADAPTER_FIELDS))
        raise CheckpointError(f"the facts have other fields than {names}")
    repo, revision, commit = (_read_text(facts[name]) for name in ("repo", "revision", "commit"))
    return repo, revision, parse_adapter(_read_text(facts["config"]), revision=commit)
