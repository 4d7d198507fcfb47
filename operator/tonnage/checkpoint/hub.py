"""Models on the Hugging Face Hub: what a repository is, without downloading its weights.

One listing gives the commit and the files, config.json the shape, the headers of the safetensors
files the tensors. All of it is read at that one commit, so the facts agree with each other.
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
from tonnage.api.inference import HuggingFaceSource
from tonnage.api.redact import passwords_of, without_credentials
from tonnage.checkpoint.config import MAX_CONFIG_BYTES, parse_config_text
from tonnage.checkpoint.hub_cache import load_tensors, store_tensors
from tonnage.checkpoint.hub_errors import FIELD, Request, explained
from tonnage.checkpoint.hub_files import RepositoryFiles
from tonnage.checkpoint.hub_headers import read_headers
from tonnage.checkpoint.hub_session import guarded_session
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import Checkpoint, CheckpointError
from tonnage.checkpoint.safetensors import MAX_FILES, MAX_INDEX_BYTES, parse_index
from tonnage.checkpoint.stored_formats import make_checkpoint
from tonnage.checkpoint.stored_tensors import TensorTable

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
    """How the Hub is read. `endpoint` None means HF_ENDPOINT or huggingface.co.

    `cache_dir` is where sizes are kept by commit, None for huggingface_hub's own place.
    `request_timeout_seconds` limits each wait for the server, `lookup_timeout_seconds` a whole
    lookup (the Hub's listing apart, which is one request).
    """

    endpoint: str | None = None
    cache_dir: Path | None = None
    request_timeout_seconds: float = 10.0
    lookup_timeout_seconds: float = 60.0


def fetch_checkpoint(
    source: HuggingFaceSource, token: str | None, settings: HubSettings
) -> Checkpoint:
    """Return what a repository holds at the commit its revision names now. Blocks on the network.

    `token` is all that is sent for authentication: never the one of the machine's own account.
    Raises ModelLookupError, with a reason and a message that says what to do.
    """
    token = _usable_token(source, token)
    endpoint = _endpoint(settings)
    request = Request(
        source,
        without_credentials(endpoint),
        settings.request_timeout_seconds,
        has_token=token is not None,
        secrets=(*([token] if token else []), *passwords_of(endpoint)),
    )
    with explained(request):
        files = _list_files(request, endpoint, token, settings)
        # Read first and never cached: it proves that this token may read this repository.
        shape = parse_config_text(_read_config(request, files))
        tensors = _measure_tensors(files, settings.cache_dir)
    size = None if tensors else _size_of_pickles(files.sizes)
    return make_checkpoint(shape, tensors, weights_bytes=size, revision=files.commit)


def saved_token() -> str | None:
    """Return the token of the person at this machine: HF_TOKEN, or what `hf auth login` saved."""
    return get_token()


def _endpoint(settings: HubSettings) -> str:
    return (settings.endpoint or constants.ENDPOINT).rstrip("/")


def _usable_token(source: HuggingFaceSource, token: str | None) -> str | None:
    """Secrets often end in a line break; what else no header can hold is refused unquoted."""
    stripped = (token or "").strip()
    if not (stripped.isascii() and stripped.isprintable()) or " " in stripped:
        secret = source.token_secret_ref
        raise ModelLookupError(
            Reason.MODEL_ACCESS_DENIED,
            f"the token{f' in Secret {secret.name}, key {secret.key},' if secret else ''} for "
            f"repository {source.repo} has characters that no token has: write it anew",
        )
    return stripped or None


def _list_files(
    request: Request, endpoint: str, token: str | None, settings: HubSettings
) -> RepositoryFiles:
    deadline = time.monotonic() + settings.lookup_timeout_seconds
    info = _read_info(request, endpoint, token)
    commit = info.sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _no_hub(request, "it names no commit")
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


def _read_info(request: Request, endpoint: str, token: str | None) -> ModelInfo:
    guarded_session()  # which HfApi takes too
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
        raise _no_hub(request, f"its listing is unreadable: {type(error).__name__}") from None


def _no_hub(request: Request, why: str) -> ModelLookupError:
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{request.repository} cannot be read: {request.endpoint} does not answer like a Hub "
        f"({why}); check HF_ENDPOINT and the proxy",
    )


def _read_config(request: Request, files: RepositoryFiles) -> bytes:
    if CONFIG_FILE not in files.sizes:
        raise ModelLookupError(
            Reason.MODEL_NOT_FOUND,
            f"{request.repository} (commit {files.commit[:12]}) has no {CONFIG_FILE}: {FIELD}.repo "
            "must be a model in the Hugging Face layout, not an adapter or a GGUF file",
        )
    return files.read(CONFIG_FILE, MAX_CONFIG_BYTES)


def _measure_tensors(files: RepositoryFiles, cache_dir: Path | None) -> TensorTable | None:
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
    """The files that vLLM loads: those of the index, else all safetensors files at the root."""
    if INDEX_FILE in files.sizes:
        return parse_index(files.read(INDEX_FILE, MAX_INDEX_BYTES)).files
    names = tuple(sorted(name for name in files.sizes if _SAFETENSORS.fullmatch(name)))
    if len(names) > MAX_FILES:
        raise CheckpointError(f"there are {len(names)} safetensors files, more than {MAX_FILES}")
    return names


def _size_of_pickles(sizes: Mapping[str, int | None]) -> int | None:
    """Weights that are not safetensors: the size of their files, None when it is unknown."""
    for pattern in _PICKLES:
        found = [
            size
            for name, size in sizes.items()
            if pattern.fullmatch(name) and name not in _NOT_WEIGHTS
        ]
        if found:
            return None if None in found else sum(size for size in found if size is not None)
    return None
