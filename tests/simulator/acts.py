"""The events of a day, as data: of objects, nodes, pools and servers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulator.gpu_site import Site
from tests.simulator.server import Server
from tests.support.load.synthetic_day import SyntheticDay

MINUTE, HOUR = 60.0, 3600.0

RECLAIM_NOTICE_SECONDS = 2 * MINUTE
"""From the notice of a spot reclaim to its end, as AWS gives it."""


class Act(Protocol):
    """One thing that somebody does, or that befalls the site."""

    def do(self, site: Site) -> None:
        """Let it happen."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """An act and its time, in seconds since the day began."""

    at: float
    act: Act


@dataclass(frozen=True, slots=True)
class Create:
    """A user declares an object, whose model takes so long to load."""

    name: str
    spec: Mapping[str, Any]
    load_seconds: float

    def do(self, site: Site) -> None:
        site.create(self.name, dict(self.spec), self.load_seconds)


@dataclass(frozen=True, slots=True)
class Attract:
    """Requests begin to come for an object, as many as the hour of the day has."""

    name: str
    day: SyntheticDay

    def do(self, site: Site) -> None:
        site.attract(self.name, self.day)


@dataclass(frozen=True, slots=True)
class Delete:
    """A user deletes an object."""

    name: str

    def do(self, site: Site) -> None:
        site.delete(self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """A user writes other fields of the spec."""

    name: str
    fields: Mapping[str, Any]

    def do(self, site: Site) -> None:
        site.apply(self.name, {**site.inference_deployment(self.name)["spec"], **self.fields})


@dataclass(frozen=True, slots=True)
class Scale:
    """A user or an autoscaler asks for so many replicas."""

    name: str
    replicas: int

    def do(self, site: Site) -> None:
        site.scale(self.name, self.replicas)


@dataclass(frozen=True, slots=True)
class Price:
    """The GPUs of a pool cost so much an hour from now on."""

    pool: str
    dollars: str

    def do(self, site: Site) -> None:
        site.declare(self.pool, self.dollars)


@dataclass(frozen=True, slots=True)
class Drain:
    """An administrator drains a node."""

    node: str

    def do(self, site: Site) -> None:
        site.drain(self.node)


@dataclass(frozen=True, slots=True)
class FallSilent:
    """A node loses its power or its network."""

    node: str

    def do(self, site: Site) -> None:
        site.fall_silent(self.node)


@dataclass(frozen=True, slots=True)
class Lose:
    """A node is gone."""

    node: str

    def do(self, site: Site) -> None:
        site.lose(self.node)


@dataclass(frozen=True, slots=True)
class ComeBack:
    """A node is there again, as new."""

    node: str

    def do(self, site: Site) -> None:
        site.come_back(self.node)


@dataclass(frozen=True, slots=True)
class RunOutOfMemory:
    """The servers of an object run out of memory on these placements, unless they have the argument
    `well_with`."""

    name: str
    placements: tuple[str, ...]
    well_with: str = ""

    def do(self, site: Site) -> None:
        server = site.behaviours[self.name]
        assert isinstance(server, Server), "made by Create"
        site.behave(self.name, server.dying_on(self.placements, self.well_with))


def reclaim(node: str, at: float, back_at: float) -> Iterator[Event]:
    """A spot node is taken away and comes back."""
    yield Event(at, Drain(node))
    yield Event(at + RECLAIM_NOTICE_SECONDS, Lose(node))
    yield Event(back_at, ComeBack(node))


def outage(nodes: Iterable[str], at: float, back_at: float) -> Iterator[Event]:
    """Nodes fall silent together and speak again."""
    for node in nodes:
        yield Event(at, FallSilent(node))
        yield Event(back_at, ComeBack(node))


def maintenance(nodes: Iterable[str], at: float, each_seconds: float) -> Iterator[Event]:
    """One node after another is drained and comes back as new."""
    for number, node in enumerate(nodes):
        yield Event(at + number * each_seconds, Drain(node))
        yield Event(at + (number + 1) * each_seconds, ComeBack(node))
