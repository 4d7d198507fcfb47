"""Days by name, for a fleet of fifty nodes and thirty objects."""

from collections.abc import Callable, Iterator, Mapping
from math import cos, pi
from random import Random
from typing import Any, Final

from tests.simulator.account import TARGET_SECONDS
from tests.simulator.acts import (
    HOUR,
    MINUTE,
    Attract,
    Change,
    Create,
    Delete,
    Event,
    Price,
    RunOutOfMemory,
    Scale,
    maintenance,
    outage,
    reclaim,
)
from tests.simulator.day import Day
from tests.simulator.models import MAX_MODEL_LEN, REQUESTS, capacity_of
from tests.support.in_memory.cluster import H100, L40S, MI300X
from tests.support.load.synthetic_day import SyntheticDay

PRICES: Final = {"mi300x": "2.60", "h100": "2.10", "l40s": "0.80"}
SMALL: Final = "llama-3.1-8b"
LARGE: Final = "llama-3.3-70b"
LOAD_SECONDS: Final = {SMALL: 3 * MINUTE, LARGE: 10 * MINUTE}
RETURNS: Final = {
    "fallback": {"after": "5m", "back": "WhenPossible"},
    "rebalance": {"stabilizationWindow": "30m"},
}
FOLLOWS_PRICES: Final = {
    "rebalance": {"policy": "WhenCheaperBy", "percent": 20, "stabilizationWindow": "30m"}
}


def quiet_day(seed: int) -> Day:
    """Everybody comes in the first hour; nothing happens after that."""
    return Day(fleet(mi300x=20, h100=20, l40s=10), PRICES, tuple(arrivals(Random(seed), 30)))


def lost_at_midday(seed: int) -> Day:
    """All H100 nodes fall silent at noon and speak again three hours later."""
    lost = outage(nodes("h100", 25), 12 * HOUR, 15 * HOUR)
    return Day(fleet(25, 25), PRICES, (*arrivals(Random(seed), 30, RETURNS), *lost))


def rolling_drain(seed: int) -> Day:
    """Every H100 node is drained, one each half hour; there are more GPUs than needed."""
    work = maintenance(nodes("h100", 25), 8 * HOUR, 30 * MINUTE)
    return Day(fleet(25, 25), PRICES, (*arrivals(Random(seed), 30, RETURNS), *work))


def price_swing(seed: int) -> Day:
    """H100 costs more by day, after a flicker that is shorter than the window."""
    swing = [(8.0, "4.20"), (8.25, "2.10"), (9.0, "4.20"), (20.0, "2.10")]
    prices = (Event(hour * HOUR, Price("h100", dollars)) for hour, dollars in swing)
    placement = {**FOLLOWS_PRICES, "maxCostPerHour": "12.00"}
    return Day(fleet(25, 25), PRICES, (*arrivals(Random(seed), 30, placement), *prices))


def wrong_predictions(seed: int) -> Day:
    """Every third object runs out of memory on H100: half of them whatever is tried there."""
    created = list(arrivals(Random(seed), 30))
    deaths = (
        Event(created[number].at, RunOutOfMemory(f"model-{number:02}", ("h100-sxm-80gb",), well))
        for number in range(0, 30, 3)
        for well in ["" if number % 2 else "--max-num-seqs=128"]
    )
    return Day(fleet(25, 25), PRICES, (*created, *deaths))


def busy_day(seed: int) -> Day:
    """Objects come, change, follow the load of the hour and go; spot nodes are taken away."""
    chance = Random(seed)
    taken = (
        event
        for node in chance.sample(nodes("h100", 20), 8)
        for at in [chance.randrange(int(2 * HOUR), int(20 * HOUR))]
        for event in reclaim(node, at, at + 2 * HOUR)
    )
    lives = (event for number in range(30) for event in life(f"model-{number:02}", chance))
    return Day(fleet(mi300x=20, h100=20, l40s=10), PRICES, (*lives, *taken))


def day_of_load(seed: int) -> Day:
    """Replicas follow the load of the hour on MI300X, and on H100 while MI300X is lost."""
    of_one = capacity_of(LARGE, "mi300x", 1).most_per_second
    chat = following_load("chat", LARGE, RETURNS)
    requests = Attract("chat", SyntheticDay(of_one, 5 * of_one))
    lost = outage(nodes("mi300x", 2), 12 * HOUR, 15 * HOUR)
    others = arrivals(Random(seed), 4, RETURNS)
    return Day(fleet(2, 4), PRICES, (Event(0, chat), Event(0, requests), *others, *lost))


def scarcity(seed: int) -> Day:
    """Half of the requested GPUs; an object that is deleted frees GPUs for those that wait."""
    chance = Random(seed)
    leaving = (
        Event(hour * HOUR, Delete(f"model-{number:02}"))
        for hour, number in enumerate(chance.sample(range(30), 12), start=2)
    )
    small = fleet(mi300x=2, h100=2, l40s=2)
    return Day(small, PRICES, (*arrivals(chance, 30, RETURNS), *leaving))


SCENARIOS: Final[Mapping[str, Callable[[int], Day]]] = {
    "quiet day": quiet_day,
    "H100 lost at midday": lost_at_midday,
    "rolling node drain": rolling_drain,
    "price swing": price_swing,
    "wrong predictions": wrong_predictions,
    "busy day": busy_day,
    "day of load": day_of_load,
    "GPU scarcity": scarcity,
}


def fleet(mi300x: int = 0, h100: int = 0, l40s: int = 0) -> dict[str, dict[str, Any]]:
    """So many nodes of each pool."""
    groups: dict[str, tuple[Mapping[str, Any], int]] = {
        "mi300x": (MI300X, mi300x),
        "h100": (H100, h100),
        "l40s": (L40S, l40s),
    }
    return {name: {**group, "count": count} for name, (group, count) in groups.items() if count}


def nodes(pool: str, count: int) -> list[str]:
    """The names of the pool's first nodes."""
    return [f"{pool}-{number}" for number in range(count)]


def arrivals(
    chance: Random, count: int, placement: Mapping[str, Any] | None = None
) -> Iterator[Event]:
    """Objects of two models and one to four replicas, declared within the first hour."""
    for number in range(count):
        model, replicas = chance.choice(sorted(LOAD_SECONDS)), chance.randint(1, 4)
        at = chance.randrange(int(HOUR))
        yield Event(at, create(f"model-{number:02}", model, replicas, placement))


def create(
    name: str, model: str, replicas: int, placement: Mapping[str, Any] | None = None
) -> Create:
    """A user declares so many replicas of a model."""
    workload = {"maxModelLen": MAX_MODEL_LEN}
    fields = {"replicas": replicas, "workload": workload}
    return Create(name, _spec(model, placement) | fields, LOAD_SECONDS[model])


def following_load(name: str, model: str, placement: Mapping[str, Any] | None = None) -> Create:
    """A user declares a model that has as many replicas as its load asks for."""
    scaling = {"maxReplicas": 16, "targets": {"timeToFirstToken": f"{TARGET_SECONDS:.0f}s"}}
    fields = {"scaling": scaling, "workload": REQUESTS}
    return Create(name, _spec(model, placement) | fields, LOAD_SECONDS[model])


def _spec(model: str, placement: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "model": {"source": {"huggingFace": {"repo": model}}},
        "placement": placement or {},
    }


def life(name: str, chance: Random) -> Iterator[Event]:
    """An object from its creation to its end, with replicas by the hour and one change."""
    began, lives = chance.randrange(int(12 * HOUR)), chance.randint(4, 12)
    most = chance.randint(2, 4)
    yield Event(began, create(name, chance.choice(sorted(LOAD_SECONDS)), most, RETURNS))
    hours = range(int(began // HOUR) + 1, min(24, int(began // HOUR) + lives))
    for hour in hours:
        yield Event(hour * HOUR, Scale(name, replicas_at(hour, most)))
    yield Event(hours[1] * HOUR + 60, Change(name, {"engine": {"vllm": {"maxNumSeqs": 77}}}))
    yield Event(hours[-1] * HOUR + 1, Delete(name))


def replicas_at(hour: int, most: int) -> int:
    """What a load with its peak at two in the afternoon asks for."""
    load = (1 + cos((hour - 14) * pi / 12)) / 2
    return max(1, round(load * most))
