"""Download a checkpoint from a Hub to a volume, once for all replicas.

A pod runs this file, with pod_program.py in place of its import, in an image of vLLM; the rest of
Tonnage only reads its text.
Environment variables: REPO, COMMIT, FOLDER (path of the checkpoint on the volume) and
TERMINATION_LOG; huggingface_hub reads HF_ENDPOINT and HF_TOKEN itself.

The files arrive in a folder of another name, which is renamed when all are there. So an interrupted
download is never loaded, and the next attempt continues it. A failure is one line in
TERMINATION_LOG; the exit code NEEDS_PERSON means that another attempt would fail like this one.
"""

import errno
import fcntl
import fnmatch
import glob
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, snapshot_download

from tonnage.checkpoint.hub.pod_program import NEEDS_PERSON, count_bytes

MAX_MESSAGE = 500

NOT_LOADED = (
    *("original/*", "onnx/*", "openvino/*", "coreml/*", "runs/*", ".git*"),
    *("*.gguf", "*.onnx", "*.onnx_data", "*.msgpack", "*.h5", "*.ot", "*.tflite", "*.ckpt"),
    # filter_files_not_needed_for_inference in vllm/model_executor/model_loader/weight_utils.py
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"),
)
"""Files that vLLM does not load."""

FORMATS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
"""Formats of weights; vLLM loads the first one that a repository has."""

INDEX = "model.safetensors.index.json"
MISTRAL = ("consolidated*.safetensors", "params.json")
"""The same weights once more in Mistral's own format."""

RECORDS = Path(".cache", "huggingface", "download")
"""Where huggingface_hub records which files it has downloaded, and has its locks, below their
folder."""

CREDENTIALS = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
"""User and password in a URL, such as that of a mirror or a proxy."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class PersonNeededError(Exception):
    """Another attempt would fail like this one."""


def select_files(names: Iterable[str]) -> list[str]:
    """Return the files that vLLM needs: the weights in one format, and all small files."""
    kept = [name for name in names if not matches(name, NOT_LOADED)]
    for name in kept:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise PersonNeededError(f"the repository lists a file outside of it: {name!r}")
    if INDEX in kept:
        kept = [name for name in kept if not matches(name, MISTRAL)]
    has_format = [
        any("/" not in name and matches(name, [each]) for name in kept) for each in FORMATS
    ]
    first = has_format.index(True) if True in has_format else len(FORMATS)
    return [name for name in kept if not matches(name, FORMATS[first + 1 :])]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether the name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def download(repo: str, commit: str, folder: Path) -> str:
    """Bring the checkpoint into the folder. Return what was done."""
    if folder.exists():
        return f"{folder} is complete already"
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.parent / f".{folder.name}.partial"
    with lock(folder.parent / f".{folder.name}.lock", partial):
        if folder.exists():
            return f"{folder} is complete already"
        sizes = list_files(repo, commit)
        check_space(partial, sizes)
        with report_progress(partial, sum(size or 0 for size in sizes.values())):
            snapshot_download(
                repo,
                revision=commit,
                local_dir=partial,
                allow_patterns=[glob.escape(name) for name in sizes],
            )
        check_files(partial, sizes)
        shutil.rmtree(partial / ".cache", ignore_errors=True)
        os.sync()
        partial.rename(folder)
    return f"downloaded {sum(size or 0 for size in sizes.values())} bytes to {folder}"


@contextmanager
def lock(path: Path, partial: Path) -> Iterator[None]:
    """Wait for other Jobs that download the same checkpoint to the same volume."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # such as Lustre without the mount option flock
            await_rest(partial)
        yield


def await_rest(partial: Path, seconds: float = 120.0) -> None:
    """Wait until nothing has changed in a folder for so long: on a file system without locks,
    nothing else says that a download has ended. huggingface_hub gives up a connection after ten
    seconds. Then remove the files that it has as locks there: it waits for ever for those of a
    download that was killed."""
    before = None
    while partial.exists() and (present := count_bytes(partial)) != before:
        before = present
        time.sleep(seconds)
    for left in (partial / RECORDS).rglob("*.lock"):
        if left.is_file():
            left.unlink(missing_ok=True)


def list_files(repo: str, commit: str) -> dict[str, int | None]:
    """Return the files to download with their sizes in bytes, None where the Hub omits them."""
    info = HfApi().model_info(repo, revision=commit, files_metadata=True)
    sizes = {file.rfilename: file.size for file in info.siblings or ()}
    return {name: sizes[name] for name in select_files(sizes)}


def check_space(partial: Path, sizes: Mapping[str, int | None]) -> None:
    """Refuse to begin what does not fit: a full volume would stop other downloads, too."""
    needed = sum(size or 0 for size in sizes.values())
    present = count_bytes(partial)
    free = shutil.disk_usage(partial.parent).free
    if needed - present > free:
        raise PersonNeededError(
            f"the volume has {free} bytes free, and {needed - present} bytes are to be downloaded:"
            " enlarge the volume, or delete checkpoints from it"
        )


@contextmanager
def report_progress(partial: Path, total: int, seconds: float = 10.0) -> Iterator[None]:
    """Write to the log how many bytes of all are there, every few seconds. The operator reads it
    (tonnage/telemetry/download_progress.py)."""
    before, begun, ended = count_bytes(partial), time.monotonic(), threading.Event()

    def report() -> None:
        while not ended.wait(seconds):
            present = min(count_bytes(partial), total)
            downloaded, elapsed = max(0, present - before), int(time.monotonic() - begun)
            sys.stdout.write(
                f"progress: {present} of {total} bytes, {downloaded} of them in {elapsed} s\n"
            )
            sys.stdout.flush()

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join(seconds)


def check_files(partial: Path, sizes: Mapping[str, int | None]) -> None:
    """Raise OSError for a file that is missing, or cut off by a crash of its node or server.

    huggingface_hub has recorded such a file as complete. Without the record, the next attempt
    compares its hash, and downloads it again only where that differs.
    """
    problems = []
    for name, size in sizes.items():
        actual = (partial / name).stat().st_size
        if size is not None and actual != size:
            (partial / RECORDS / f"{name}.metadata").unlink(missing_ok=True)
            problems.append(f"{name} has {actual} bytes, and the Hub lists {size}")
    if problems:
        raise OSError(problems[0])


def explain(error: BaseException) -> tuple[str, int]:
    """Return the cause of a failure, and the exit code."""
    if isinstance(error, PersonNeededError):
        return str(error), NEEDS_PERSON
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    status = find_status(error)
    if status == 401:
        return f"{endpoint} refused the token (401): it is expired or revoked", NEEDS_PERSON
    if status == 403:
        return f"{endpoint} forbids it (403): the token has no access", NEEDS_PERSON
    if status == 404:
        return f"{endpoint} does not have it any more (404), or not for this token", NEEDS_PERSON
    if status == 429:
        return f"{endpoint} limits the rate of requests (429)", 1
    if status is not None:
        return f"{endpoint} answered {status}", 1
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return "the volume is full: enlarge it, or delete checkpoints from it", NEEDS_PERSON
    if isinstance(error, OSError) and error.errno in NOT_WRITABLE:
        return (
            f"the volume cannot be written by user {os.getuid()} with groups {os.getgroups()}"
            f" ({error.strerror}: {error.filename})"
        ), NEEDS_PERSON
    return f"{type(error).__name__}: {error}", 1


def find_status(error: BaseException) -> int | None:
    """Return the status that a Hub answered, None without one. huggingface_hub raises some errors
    from others, and its classes differ between releases."""
    cause: BaseException | None = error
    while cause is not None:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        cause = cause.__cause__ or cause.__context__
    return None


def main() -> None:
    """Download, and leave one line on the cause of a failure."""
    try:
        repo, commit = os.environ["REPO"], os.environ["COMMIT"]
        sys.stdout.write(download(repo, commit, Path(os.environ["FOLDER"])) + "\n")
    except Exception as error:  # noqa: BLE001 - the cause of every failure is for the status
        cause, code = explain(error)
        token = os.environ.get("HF_TOKEN")
        words = CREDENTIALS.sub("", cause.replace(token, "***") if token else cause)
        message = " ".join(words.split())[:MAX_MESSAGE]
        Path(os.environ["TERMINATION_LOG"]).write_text(message, encoding="utf-8")
        sys.stderr.write(message + "\n")
        sys.exit(code)


if __name__ == "__main__":
    main()
