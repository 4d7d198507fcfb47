"""A server that loads its weights with the Run:ai Model Streamer, as docs/weights.md says."""

from datetime import UTC, datetime

from tonnage.engines.lifetime import startup_seconds
from tonnage.engines.medium import Medium
from tonnage.telemetry.startup_progress import read_progress

STREAMED = ("--load-format=runai_streamer", '--model-loader-extra-config={"concurrency": 2}')


def test_streamed_weights_serve_and_their_tensors_are_progress(start):
    server = start(extra=STREAMED)
    server.wait_healthy(startup_seconds(1, Medium.PATH))
    with server.stream({"model": "tiny", "prompt": "w7 w8", "max_tokens": 4}) as answer:
        assert answer.status == 200
    now = datetime.now(UTC).isoformat()
    log = "\n".join(f"{now} {line}" for line in server.log.split("\n"))
    files = read_progress(log, "vllm").files
    assert files is not None
    assert files.unit == "tensor"
    assert files.loaded == files.total > 1
