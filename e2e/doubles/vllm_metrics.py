"""What a real vLLM 0.32.0 answered on /metrics, served again on a loopback port.

Recorded before and after 22 requests to a random Llama of 2.9 million parameters on a CPU. Pods of
the harness have no address that answers, so a Prometheus is led here instead.
"""

from __future__ import annotations

from pathlib import Path

from e2e.doubles.page_server import Page, PageServer

_RECORDED = Path(__file__).parents[2] / "tests" / "data" / "vllm-metrics"
_CONTENT_TYPE = "text/plain; version=1.0.0"  # as vLLM sends it to every client


class VllmMetrics(PageServer):
    """One server in the place of all vLLM pods: idle at first, then as after some requests."""

    def __init__(self) -> None:
        super().__init__()
        self._text = (_RECORDED / "idle.txt").read_bytes()

    def answer_requests(self) -> None:
        """From here on it has answered requests: counters have grown."""
        self._text = (_RECORDED / "after-requests.txt").read_bytes()

    def answer(self, path: str) -> Page:
        """The metrics, whatever the path."""
        return Page(self._text, _CONTENT_TYPE)
