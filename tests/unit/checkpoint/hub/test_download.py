"""The program that downloads a checkpoint: which files it takes, and how it explains a failure."""

import errno
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tonnage.checkpoint.hub.download import (
    PersonNeededError,
    explain,
    report_progress,
    select_files,
)
from tonnage.checkpoint.hub.pod_program import NEEDS_PERSON
from tonnage.telemetry.download_progress import read_download

SMALL = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "LICENSE",
    "chat_template.jinja",
]


@pytest.mark.parametrize(
    ("weights", "want"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin", "extra.pt", "old.pth"], ["pytorch_model.bin"]),
        (["model.pt"], ["model.pt"]),
        (
            ["model.safetensors", "original/consolidated.00.pth", "onnx/model.onnx", "x.gguf"],
            ["model.safetensors"],
        ),
        (
            ["model-1.safetensors", "model.safetensors.index.json", "consolidated.safetensors"],
            ["model-1.safetensors", "model.safetensors.index.json"],
        ),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
        (["model.safetensors", "optimizer.pt", "training_args.bin"], ["model.safetensors"]),
        (
            ["pytorch_model.bin", "text_encoder/model.safetensors"],
            ["pytorch_model.bin", "text_encoder/model.safetensors"],
        ),
    ],
)
def test_the_weights_are_taken_in_one_format(weights: list[str], want: list[str]) -> None:
    assert select_files([*SMALL, *weights, ".gitattributes"]) == [*SMALL, *want]


@pytest.mark.parametrize("name", ["../config.json", "a/../../b", "/etc/passwd"])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(PersonNeededError, match="outside"):
        select_files(["config.json", name])


class HubError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("text of a server")
        self.response = SimpleNamespace(status_code=status)


def caused_by(error: Exception) -> Exception:
    try:
        raise ValueError("cannot find the requested files") from error
    except ValueError as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "want", "want_code"),
    [
        (HubError(401), "refused the token (401)", NEEDS_PERSON),
        (HubError(403), "forbids it (403)", NEEDS_PERSON),
        (HubError(404), "does not have it any more (404)", NEEDS_PERSON),
        (HubError(429), "limits the rate of requests (429)", 1),
        (caused_by(HubError(429)), "limits the rate of requests (429)", 1),
        (HubError(503), "answered 503", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "the volume is full", NEEDS_PERSON),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the volume is full", NEEDS_PERSON),
        (
            PermissionError(errno.EACCES, "Permission denied", "/v"),
            "cannot be written",
            NEEDS_PERSON,
        ),
        (OSError(errno.EIO, "Input/output error"), "OSError: [Errno 5]", 1),
        (TimeoutError("no answer"), "TimeoutError: no answer", 1),
    ],
)
def test_only_what_a_person_must_repair_ends_the_attempts(
    error: Exception, want: str, want_code: int
) -> None:
    message, code = explain(error)
    assert want in message
    assert code == want_code


def test_the_operator_reads_the_progress_that_the_program_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first").write_bytes(b"x" * 8192)
    with report_progress(tmp_path, 65536, seconds=0.01):
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache" / "second.incomplete").write_bytes(b"x" * 8192)
        written, deadline = "", time.monotonic() + 60
        while written.count("progress: 16384") < 1 and time.monotonic() < deadline:
            written += capsys.readouterr().out
    progress = read_download(written)
    assert progress is not None
    assert (progress.present, progress.total, progress.downloaded) == (16384, 65536, 8192)
