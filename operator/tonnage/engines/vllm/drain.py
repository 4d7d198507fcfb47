"""How vLLM ends: it drains by itself since a release, before that a hook waits for it."""

from typing import Any, Final

from tonnage.api.inference import Rollout
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.catalog.vllm.releases import parse_version
from tonnage.engines.defaults import load_defaults
from tonnage.engines.lifetime import drain_seconds, render_pause

SHUTDOWN_FLAG: Final = "--shutdown-timeout"

WAIT_UNTIL_IDLE: Final = """\
import sys, time, urllib.request
url, pause, drain, interval = sys.argv[1], *map(float, sys.argv[2:])
time.sleep(pause)
end = time.monotonic() + drain
counts = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped")
while time.monotonic() < end:
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            lines = page.read().decode().splitlines()
    except TimeoutError:
        continue
    if not sum(float(line.split()[-1]) for line in lines if line.startswith(counts)):
        break
    time.sleep(interval)
"""
"""Waits until a server has no request, at most `drain` seconds after a pause, in which endpoints
drop the pod. An error, such as a server that has ended, ends the wait; a busy server may answer
late."""


def drains_by_itself(version: str) -> bool:
    """Whether this vLLM release ends the requests in flight before it ends."""
    since = engine_flags().flags[SHUTDOWN_FLAG].since
    return since is None or parse_version(version) >= parse_version(since)


def render_lifecycle(version: str, rollout: Rollout) -> dict[str, Any]:
    """A pause before SIGTERM.

    An older vLLM release aborts requests in flight on SIGTERM. Where the user sets a drain, the
    hook waits for them, with the Python that vLLM itself runs on.
    """
    if rollout.drain is None or drains_by_itself(version):
        return render_pause()
    server = load_defaults().server
    url = f"http://127.0.0.1:{server.port}/metrics"
    seconds = (server.pre_stop_seconds, drain_seconds(rollout), server.drain_poll_seconds)
    command = ["python3", "-c", WAIT_UNTIL_IDLE, url, *map(str, seconds)]
    return {"preStop": {"exec": {"command": command}}}
