"""What an object costs the API server: the requests of everybody, from its audit log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from e2e.harness.rest import Json

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(slots=True)
class RequestCost:
    """Requests while `objects` were created and settled: seconds that the API server took for each,
    by verb and resource, and how many of them the measured controller sent."""

    objects: int = 0
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_controller: int = 0

    def add(self, objects: int, events: Sequence[Json], user: str) -> None:
        """Add a round: its objects and the events of its audit log."""
        self.objects += objects
        for event in events:
            if event["verb"] != "watch" and "objectRef" in event:
                self.seconds[describe_request(event)].append(request_seconds(event))
        self.by_controller += len(requests_of(user, events))


def requests_of(user: str, events: Iterable[Json]) -> list[Json]:
    """The requests of one user, or of one program by its user agent, for objects: without watches
    and without the Lease of a leader."""
    return [
        event
        for event in events
        if event["verb"] != "watch"
        and "objectRef" in event
        and event["objectRef"]["resource"] != "leases"
        and (event["user"]["username"].endswith(user) or user in event.get("userAgent", ""))
    ]


def writes_of(user: str, events: Iterable[Json]) -> list[Json]:
    """Those of a user's requests that write."""
    return [event for event in requests_of(user, events) if event["verb"] in WRITE_VERBS]


def describe_request(event: Json) -> str:
    """Verb and resource, such as `patch deployments/status`."""
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return f"{event['verb']} {resource}"


def request_seconds(event: Json) -> float:
    """How long the API server took for a request."""
    received, answered = event["requestReceivedTimestamp"], event["stageTimestamp"]
    return (datetime.fromisoformat(answered) - datetime.fromisoformat(received)).total_seconds()


def most_frequent(costs: Sequence[RequestCost]) -> list[str]:
    """All requests of these rounds, the most frequent first."""
    totals: Mapping[str, int] = {
        request: sum(len(cost.seconds.get(request, ())) for cost in costs)
        for cost in costs
        for request in cost.seconds
    }
    return sorted(totals, key=lambda request: (-totals[request], request))
