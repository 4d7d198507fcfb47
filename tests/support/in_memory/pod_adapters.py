"""The adapters of pods that answer on /v1/models, as vLLM has them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tonnage.reconcile.key import Key
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.served_adapters import PodCalls, ServedAdapters


class FakePodAdapters:
    """While `answers` is set, every start of a container has a list of its own, empty at first.

    `refuses` has, by source, why no pod loads an adapter from there.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self.answers = False
        self.refuses: dict[str, str] = {}
        self.calls: list[PodCalls] = []
        self.served: dict[str, ServedAdapters] = {}
        self._wake = wake

    def read(
        self, key: Key, pods: list[ServingPod], model: str, refresh: float
    ) -> Mapping[str, ServedAdapters]:
        """The lists of these pods, by pod."""
        if not self.answers:
            return {}
        return {pod.name: self._answer(pod) for pod in pods}

    def update(self, key: Key, changes: tuple[PodCalls, ...]) -> None:
        """Carry the calls out at once."""
        for change in changes:
            if self._answer(change.pod).failed:  # not again before a delay
                continue
            self.calls.append(change)
            adapters, failed = dict(self._answer(change.pod).adapters or {}), {}
            for call in change.calls:
                if call.source is None:
                    del adapters[call.name]
                elif call.source in self.refuses:
                    failed[call.name] = self.refuses[call.source]
                else:
                    adapters[call.name] = call.source
            answer = replace(self._answer(change.pod), adapters=adapters, failed=failed)
            self.served[change.pod.start] = answer
            self._wake(key)

    def _answer(self, pod: ServingPod) -> ServedAdapters:
        return self.served.setdefault(pod.start, ServedAdapters({}))
