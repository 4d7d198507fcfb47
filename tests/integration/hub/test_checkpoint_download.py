"""The program of the download Job as a process, with the real client of the Hub."""

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.foreign.hub_server import Answer, HubFile, HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS, TOKEN
from tonnage.workloads.pod.weights import program

TIMEOUT_SECONDS = 300
"""Nothing takes so long but on a machine with far more to do than it has cores."""
REPO = "acme/tiny"
FILES = {
    "config.json": CONFIG,
    "tokenizer.json": HubFile.of("{}"),
    **SHARDS,
    "pytorch_model.bin": HubFile.of("the same once more"),
    "original/consolidated.00.pth": HubFile.of("and again"),
}


def start(
    hub: HubServer, volume: Path, commit: str, token: str | None = None, endpoint: str | None = None
) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HF_ENDPOINT": endpoint or hub.endpoint,
        "HF_HOME": str(volume.parent / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "REPO": REPO,
        "COMMIT": commit,
        "FOLDER": str(volume / "acme--tiny" / commit),
        "TERMINATION_LOG": str(volume.parent / "termination-log"),
        **({"HF_TOKEN": token} if token else {}),
    }
    command = [sys.executable, "-c", program("download")]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(
    hub: HubServer, volume: Path, commit: str, token: str | None = None, endpoint: str | None = None
) -> int:
    process = start(hub, volume, commit, token, endpoint)
    process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode


def await_lock(process: subprocess.Popen[str]) -> None:
    """Return once the process waits for a lock. The kernel lists such processes with an arrow."""
    while True:
        waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        if any("->" in words and str(process.pid) in words for words in waiting):
            return
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended with {process.wait(0.05)} without waiting")


def message(volume: Path) -> str:
    return (volume.parent / "termination-log").read_text("utf-8")


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


def test_what_vllm_needs_is_at_the_path_and_nothing_else(hub: HubServer, volume: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    assert run(hub, volume, commit) == 0
    folder = volume / "acme--tiny" / commit
    assert files_in(folder) == {"config.json", "tokenizer.json", *SHARDS}
    assert (folder / "config.json").read_bytes() == CONFIG.start
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [commit]


def test_a_second_run_asks_the_hub_for_nothing(hub: HubServer, volume: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    assert run(hub, volume, commit) == 0
    hub.requests.clear()
    assert run(hub, volume, commit) == 0
    assert hub.requests == []


def test_an_interrupted_download_is_not_used_and_is_continued(hub: HubServer, volume: Path) -> None:
    first = "model-00001-of-00002.safetensors"
    commit = hub.add_repo(REPO, {**FILES, "extra.json": HubFile.of("{}")})
    hub.missing_files.add("extra.json")
    partial = volume / "acme--tiny" / f".{commit}.partial"
    for _ in range(5):  # an error drops the files that are not begun yet
        assert run(hub, volume, commit) != 0
        if (partial / first).exists():
            break
    assert not (volume / "acme--tiny" / commit).exists()

    hub.missing_files.clear()
    hub.requests.clear()
    assert run(hub, volume, commit) == 0
    assert "extra.json" in files_in(volume / "acme--tiny" / commit)
    assert f"GET /{REPO}/resolve/{commit}/{first}" not in hub.requests


def test_a_file_that_a_crash_cut_off_is_downloaded_again(hub: HubServer, volume: Path) -> None:
    name = "tokenizer.json"
    commit = hub.add_repo(REPO, FILES)
    hub.listed_sizes["config.json"] = 5
    assert run(hub, volume, commit) == 1  # all files are there, and one has another size
    file = volume / "acme--tiny" / f".{commit}.partial" / name
    written = file.stat().st_mtime
    file.write_bytes(b"{")
    os.utime(file, (written, written))
    hub.listed_sizes.clear()
    assert run(hub, volume, commit) == 1
    assert message(volume) == f"OSError: {name} has 1 bytes, and the Hub lists 2"
    assert run(hub, volume, commit) == 0
    assert (volume / "acme--tiny" / commit / name).read_bytes() == FILES[name].start


def test_a_hub_that_lists_a_wrong_size_is_not_asked_for_the_file_again(
    hub: HubServer, volume: Path
) -> None:
    commit = hub.add_repo(REPO, FILES)
    hub.listed_sizes["tokenizer.json"] = 5
    assert run(hub, volume, commit) == 1
    hub.requests.clear()
    for _ in range(2):
        assert run(hub, volume, commit) == 1
        assert message(volume) == "OSError: tokenizer.json has 2 bytes, and the Hub lists 5"
    assert not any(each.startswith("GET") and "/resolve/" in each for each in hub.requests)


def test_a_download_that_another_job_has_begun_is_awaited(hub: HubServer, volume: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    folder = volume / "acme--tiny" / commit
    folder.parent.mkdir()
    with (folder.parent / f".{commit}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        process = start(hub, volume, commit)
        await_lock(process)
        folder.mkdir()
    output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert "is complete already" in output
    assert hub.requests == []


NO_LOCKS = """
import errno, fcntl
def flock(file, operation):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = flock
"""


def test_a_killed_download_leaves_no_lock_where_the_file_system_has_none(
    hub: HubServer, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the Hub makes files that mean a lock there, and waits for them for ever."""
    text = program("download")
    assert "seconds: float = 120.0" in text
    changed = NO_LOCKS + text.replace("seconds: float = 120.0", "seconds: float = 0.1")
    monkeypatch.setitem(globals(), "program", lambda name: changed)
    commit = hub.add_repo(REPO, FILES)
    hub.listed_sizes["config.json"] = 5
    assert run(hub, volume, commit) == 1
    hub.listed_sizes.clear()
    records = volume / "acme--tiny" / f".{commit}.partial" / ".cache" / "huggingface" / "download"
    (records / "config.json.lock").write_text("1\nthe-pod-before\n")
    assert run(hub, volume, commit) == 0


@pytest.mark.parametrize(
    ("trouble", "want", "want_code"),
    [
        (Answer(401), "refused the token (401)", 3),
        (Answer(403), "forbids it (403)", 3),
        (Answer(503), "answered 503", 1),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(
    hub: HubServer, volume: Path, trouble: Answer, want: str, want_code: int
) -> None:
    commit = hub.add_repo(REPO, FILES)
    hub.trouble = trouble
    assert run(hub, volume, commit, TOKEN) == want_code
    assert want in message(volume)
    assert TOKEN not in message(volume)
    assert "\n" not in message(volume)


def test_the_password_of_a_mirror_is_not_in_the_message(hub: HubServer, volume: Path) -> None:
    commit = hub.add_repo(REPO, FILES)
    hub.trouble = Answer(429)
    endpoint = hub.endpoint.replace("://", "://reader:password@")
    assert run(hub, volume, commit, endpoint=endpoint) == 1
    assert message(volume) == f"{hub.endpoint} limits the rate of requests (429)"


def test_a_gated_repository_is_downloaded_with_the_token(hub: HubServer, volume: Path) -> None:
    commit = hub.add_repo(REPO, FILES, gated=True, readers=(TOKEN,))
    assert run(hub, volume, commit) == 3
    assert run(hub, volume, commit, TOKEN) == 0


def test_a_volume_that_is_too_small_is_refused_before_the_download(
    hub: HubServer, volume: Path
) -> None:
    files = {**FILES, "model-00002-of-00002.safetensors": HubFile(b"", 2**60)}
    commit = hub.add_repo(REPO, files)
    assert run(hub, volume, commit) == 3
    assert "bytes free" in message(volume)
    assert not any("/resolve/" in request for request in hub.requests)
