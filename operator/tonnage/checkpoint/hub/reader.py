"""Read models on the Hugging Face Hub without downloading their weights.

One listing gives the commit and the files, config.json the shape, the headers of the safetensors
files the tensors. All reads use that commit, so the facts are consistent.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub import HfApi, ModelInfo, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.api.text import passwords_of, without_credentials
from tonnage.checkpoint.adapter import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MAX_ADAPTER_CONFIG_BYTES,
    AdapterFacts,
    parse_adapter,
)
from tonnage.checkpoint.hub.cache import load_tensors, store_tensors
from tonnage.checkpoint.hub.errors import SPEC_INPUTS, HubInputs, HubRequest, translate_errors
from tonnage.checkpoint.hub.files import RepositoryFiles
from tonnage.checkpoint.hub.headers import read_headers
from tonnage.checkpoint.hub.session import guarded_session
from tonnage.checkpoint.kept_facts import encode_facts
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import MAX_FILES, MAX_INDEX_BYTES, parse_index
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES, parse_config_text
from tonnage.checkpoint.tensor_table import TensorTable

CONFIG_FILE: Final = constants.CONFIG_NAME
INDEX_FILE: Final = constants.SAFETENSORS_INDEX_FILE

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SAFETENSORS: Final = re.compile(r"[\w.+-]+\.safetensors", re.ASCII)
_PICKLES: Final = (re.compile(r"[\w.+-]+\.bin", re.ASCII), re.compile(r"[\w.+-]+\.pt", re.ASCII))
_NOT_WEIGHTS: Final = frozenset(
    # filter_files_not_needed_for_inference in vllm/model_executor/model_loader/weight_utils.py
    ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
)


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Settings of the Hub client. `endpoint` None means HF_ENDPOINT or huggingface.co.

    `cache_dir` caches tensors by commit, None for huggingface_hub's assets cache.
    `request_timeout_seconds` limits each wait for the server, `lookup_timeout_seconds` a lookup
    without the Hub's listing, which is one request. `inputs` are the user's, for messages.
    """

    endpoint: str | None = None
    cache_dir: Path | None = None
    request_timeout_seconds: float = 10.0
    lookup_timeout_seconds: float = 60.0
    inputs: HubInputs = SPEC_INPUTS


def fetch_checkpoint(
    source: HuggingFaceSource, token: str | None, settings: HubSettings
) -> Checkpoint:
    """Return the model at the commit that the revision names now. Blocks on the network.

    Requests carry only `token`, never the token of the machine's own account. Raises
    ModelLookupError with a reason and a message that says what to do.
    """
    token = _normalize_token(source, token)
    request = _make_request(source, token, settings)
    with translate_errors(request):
        files = _list_files(request, _resolve_endpoint(settings), token, settings)
        # Read first and never cached: this proves that the token may read this repository.
        config = _read_config(request, files)
        shape = parse_config_text(config)
        tensors = _read_tensors(files, settings.cache_dir)
    size = None if tensors else _sum_pickle_sizes(files.sizes)
    checkpoint = make_checkpoint(shape, tensors, weights_bytes=size, revision=files.commit)
    kept = encode_facts(source.repo, source.revision, config, checkpoint)
    return checkpoint.with_kept_facts(kept)


def fetch_adapter(
    source: HuggingFaceSource, token: str | None, settings: HubSettings
) -> AdapterFacts:
    """Return the LoRA adapter at the commit that the revision names now. Blocks on the network.

    Raises ModelLookupError as `fetch_checkpoint` does, also for an adapter that vLLM does not load.
    """
    token = _normalize_token(source, token)
    request = _make_request(source, token, settings)
    with translate_errors(request):
        files = _list_files(request, _resolve_endpoint(settings), token, settings)
        if ADAPTER_CONFIG not in files.sizes:
            raise ModelLookupError(
                Reason.MODEL_NOT_FOUND,
                f"{request.repository} (commit {files.commit[:12]}) has no {ADAPTER_CONFIG}: "
                "expected a LoRA adapter as PEFT saves it",
            )
        config = files.read(ADAPTER_CONFIG, MAX_ADAPTER_CONFIG_BYTES)
        weights = (ADAPTER_WEIGHTS,) if ADAPTER_WEIGHTS in files.sizes else ()
        tensors = read_headers(files, weights) if weights else None
        return parse_adapter(config, tensors, files.commit)


def _make_request(
    source: HuggingFaceSource, token: str | None, settings: HubSettings
) -> HubRequest:
    endpoint = _resolve_endpoint(settings)
    return HubRequest(
        source,
        without_credentials(endpoint),
        settings.request_timeout_seconds,
        has_token=token is not None,
        secrets=(*([token] if token else []), *passwords_of(endpoint)),
        inputs=settings.inputs,
    )


def saved_token() -> str | None:
    """Return the machine user's token: HF_TOKEN, or the one that `hf auth login` saved."""
    return get_token()


def _resolve_endpoint(settings: HubSettings) -> str:
    return (settings.endpoint or constants.ENDPOINT).rstrip("/")


def _normalize_token(source: HuggingFaceSource, token: str | None) -> str | None:
    """Strip a token, as Secrets often end in a line break; refuse characters that no header holds.

    The message does not quote the token.
    """
    stripped_token = (token or "").strip()
    if not (stripped_token.isascii() and stripped_token.isprintable()) or " " in stripped_token:
        secret = source.token_secret_ref
        raise ModelLookupError(
            Reason.MODEL_ACCESS_DENIED,
            f"the token{f' in Secret {secret.name}, key {secret.key},' if secret else ''} for "
            f"repository {source.repo} has characters that no token has: write the token again",
        )
    return stripped_token or None


def _list_files(
    request: HubRequest, endpoint: str, token: str | None, settings: HubSettings
) -> RepositoryFiles:
    deadline = time.monotonic() + settings.lookup_timeout_seconds
    info = _read_info(request, endpoint, token)
    commit = info.sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _not_a_hub_error(request, "its listing has no commit")
    return RepositoryFiles(
        endpoint=endpoint,
        repo=request.source.repo,
        commit=commit,
        sizes={
            file.rfilename: file.size if isinstance(file.size, int) and file.size >= 0 else None
            for file in info.siblings or ()
        },
        token=token,
        request_timeout_seconds=settings.request_timeout_seconds,
        deadline=deadline,
    )


def _read_info(request: HubRequest, endpoint: str, token: str | None) -> ModelInfo:
    guarded_session()  # HfApi uses the same session
    try:
        return HfApi(endpoint=endpoint).model_info(
            request.source.repo,
            revision=request.source.revision,
            timeout=request.timeout_seconds,
            files_metadata=True,
            token=token or False,
        )
    except (HfHubHTTPError, HFValidationError):
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _not_a_hub_error(
            request, f"its listing is unreadable: {type(error).__name__}"
        ) from None


def _not_a_hub_error(request: HubRequest, cause: str) -> ModelLookupError:
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{request.repository} cannot be read: {request.endpoint} does not answer like a Hub "
        f"({cause}); check HF_ENDPOINT and the proxy",
    )


def _read_config(request: HubRequest, files: RepositoryFiles) -> bytes:
    if CONFIG_FILE not in files.sizes:
        raise ModelLookupError(
            Reason.MODEL_NOT_FOUND,
            f"{request.repository} (commit {files.commit[:12]}) has no {CONFIG_FILE}: "
            f"{request.inputs.repository} must be a model in the Hugging Face layout, not an "
            "adapter or a GGUF file",
        )
    return files.read(CONFIG_FILE, MAX_CONFIG_BYTES)


def _read_tensors(files: RepositoryFiles, cache_dir: Path | None) -> TensorTable | None:
    """Return the tensors of all safetensors files, None when there are none."""
    cached = load_tensors(cache_dir, files.repo, files.commit)
    if cached is not None:
        return cached
    names = _find_weight_files(files)
    if not names:
        return None
    tensors = read_headers(files, names)
    store_tensors(cache_dir, files.repo, files.commit, tensors)
    return tensors


def _find_weight_files(files: RepositoryFiles) -> tuple[str, ...]:
    """Return the files that vLLM loads: those in the index, else all safetensors at the root."""
    if INDEX_FILE in files.sizes:
        return parse_index(files.read(INDEX_FILE, MAX_INDEX_BYTES)).files
    names = tuple(sorted(name for name in files.sizes if _SAFETENSORS.fullmatch(name)))
    if len(names) > MAX_FILES:
        raise CheckpointError(f"there are {len(names)} safetensors files, more than {MAX_FILES}")
    return names


def _sum_pickle_sizes(sizes: Mapping[str, int | None]) -> int | None:
    """Return the bytes of weight files that are not safetensors, None when unknown."""
    for pattern in _PICKLES:
        pickle_sizes = [
            size
            for name, size in sizes.items()
            if pattern.fullmatch(name) and name not in _NOT_WEIGHTS
        ]
        if pickle_sizes:
            known_sizes = [size for size in pickle_sizes if size is not None]
            return sum(known_sizes) if len(known_sizes) == len(pickle_sizes) else None
    return None
