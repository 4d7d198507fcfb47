"""Each reader of strangers' bytes in a child process of its own, which the kernel holds to bounds.

`python -m tests.support.foreign.bounded_readers` tries all of them and prints a line of JSON for
each text. It is a process of its own since what a long pytest process has freed would be lent to
the readers.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle

from tests.support.foreign.dense_texts import dense_values, worst_texts
from tests.support.foreign.hostile_values import places
from tests.support.foreign.readers import READERS, Reader
from tonnage.checkpoint.hub.headers import MAX_HEADER_BYTES
from tonnage.checkpoint.safetensors.headers import MAX_INDEX_BYTES
from tonnage.checkpoint.shape import MAX_CONFIG_BYTES
from tonnage.cli.sources.documents import MAX_FILE_BYTES
from tonnage.controller.start_reader import WHOLE_BYTES
from tonnage.reconcile.observation.pods.failed_logs import TAIL_BYTES
from tonnage.telemetry.pod_metrics import MAX_BYTES
from tonnage.telemetry.prometheus import MAX_ANSWER_BYTES

MIB = 2**20

MOST_BYTES = 128 * MIB
"""Memory that one text may take. The models that are read at once together have half of what the
Deployment gives the operator (manifests/base/deployment.yaml)."""

MOST_BYTES_ALONE = {"the spec of an InferenceDeployment": 2 * MOST_BYTES}
"""Of what the event loop reads, one at a time: 1.5 MiB of keys take 128 MiB, give or take some."""

MOST_SECONDS = 5
"""Of the processor. Whole, as the kernel counts them. Other processes on the same core can triple
what a text takes, which is less than a second."""

MOST_SECONDS_ALONE = {"a file for the command line": 30}
"""Two seconds for a MiB of short YAML lines. A reader in quadratic time would need minutes."""

STORED_OBJECT_BYTES = 3 * MIB // 2
"""etcd takes no larger one by default (--max-request-bytes)."""

CONFIG_MAP_BYTES = MIB
"""MaxSecretSize of the API server, which holds for ConfigMaps, too."""

ANNOTATIONS_BYTES = 256 * 1024
"""TotalAnnotationSizeLimitB of the API server."""

PLACE_BYTES = 64 * 1024
PLACE_MOST_BYTES = 32 * MIB
"""In each place of a text that is understood stands a text of the one size, and the whole may take
the other: 512 bytes for each of the text. It is small since the places are many."""

LARGEST: Mapping[str, int] = {
    "config.json": MAX_CONFIG_BYTES,
    "the header of a safetensors file": MAX_HEADER_BYTES,
    "the start of a safetensors file": MAX_HEADER_BYTES,
    "the index of a checkpoint": MAX_INDEX_BYTES,
    "a table of tensors": CONFIG_MAP_BYTES,
    "sizes by dtype": CONFIG_MAP_BYTES,
    "the size of the weights in a ConfigMap": CONFIG_MAP_BYTES,
    "an annotation of a place": ANNOTATIONS_BYTES,
    "an annotation of a move": ANNOTATIONS_BYTES,
    "an annotation of a model's facts": ANNOTATIONS_BYTES,
    "a model's facts in an annotation": MIB,
    "a file for the command line": MIB,  # takes more for more: what a person plans with is theirs
    "a case of a batch": MIB,  # likewise
    "an entry of the corrections": CONFIG_MAP_BYTES,
    "a result of Prometheus": MAX_ANSWER_BYTES,
    "a page of metrics": MAX_BYTES,
    "a log of vLLM": TAIL_BYTES,
    "the log of a start": WHOLE_BYTES,
}
"""Most bytes that get as far as the reader; of an object of the API server STORED_OBJECT_BYTES."""

_HANGS_SECONDS = 600
"""By the clock. A machine with far more to do than it has cores takes long for MOST_SECONDS."""

SET_ASIDE_BYTES: Mapping[str, int] = {"a file for the command line": MAX_FILE_BYTES}
"""What a reader asks for before it knows how long the text is, and does not touch beyond."""

_OUTCOMES = ("", "it takes too much memory", "it raises what is no error of ours")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a text took. `fault` is empty where all is well."""

    reader: str
    text: str
    seconds: float
    fault: str


def try_bounded(
    name: str, reader: Reader, text: tuple[str, list[bytes]], most_bytes: int, most_seconds: int
) -> Outcome:
    """Read the texts, one after the other, in a child that may take so much more memory than there
    is now."""
    pid = os.fork()
    if pid == 0:
        _read_and_exit(reader, text[1], most_bytes, most_seconds)
    _, status, usage = os.wait4(pid, 0)
    return Outcome(
        name,
        text[0],
        seconds=round(usage.ru_utime + usage.ru_stime, 2),
        fault=_fault(os.waitstatus_to_exitcode(status)),
    )


def _read_and_exit(
    reader: Reader, texts: Iterable[bytes], most_bytes: int, most_seconds: int
) -> None:
    """In the child. It leaves by _exit: nothing of the parent's is to be cleared away here."""
    outcome = 0
    try:
        limit = _data_bytes() + most_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, most_seconds + 1))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_HANGS_SECONDS)  # Rust may wait for ever where its panic finds no memory
        for text in texts:
            with suppress(*reader.errors):
                reader.read(text)
    except MemoryError:
        outcome = 1
    except BaseException:  # noqa: BLE001 - any error is reported and the child ends
        traceback.print_exc()
        outcome = 2
    os._exit(outcome)


def _data_bytes() -> int:
    """What RLIMIT_DATA counts (proc(5), statm): heap, private mappings and stack."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[5]) * resource.getpagesize()


def _fault(code: int) -> str:
    if code == -signal.SIGXCPU:
        return "it takes too long"
    if code < 0:
        return f"it dies by {signal.Signals(-code).name}"
    return _OUTCOMES[code]


def try_all(readers: Mapping[str, Reader]) -> Iterator[Outcome]:
    """Each reader with the worst texts that get as far as it, whole and in each place."""
    for name, reader in readers.items():
        for kind, text in worst_texts(LARGEST.get(name, STORED_OBJECT_BYTES)):
            most_bytes = MOST_BYTES_ALONE.get(name, MOST_BYTES)
            most_seconds = MOST_SECONDS_ALONE.get(name, MOST_SECONDS)
            yield try_bounded(name, reader, (kind, [text]), most_bytes, most_seconds)
        most_bytes = PLACE_MOST_BYTES + SET_ASIDE_BYTES.get(name, 0)
        for number, sample in enumerate(reader.samples):
            texts = (f"in each place of sample {number}", list(_in_places(sample)))
            yield try_bounded(name, reader, texts, most_bytes, MOST_SECONDS)


def _in_places(sample: object) -> Iterator[bytes]:
    """What is understood, with one of the dense values in each place, in turn."""
    dense = cycle(value.decode() for _, value in dense_values(PLACE_BYTES))
    return ((place % next(dense)).encode() for place in places(sample))


def main() -> None:
    """Try all, and tell of each."""
    gc.freeze()  # or each child would copy what its garbage collector looks at
    for outcome in try_all(READERS):
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
