"""What vLLM takes or refuses when it splits a model over GPUs, by method, class and release."""

from collections.abc import Iterable
from datetime import date
from functools import lru_cache

from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.engine import parse_version
from tonnage.catalog.model import STRICT
from tonnage.catalog.schema import Entry


@dataclass(frozen=True, slots=True, config=STRICT)
class Behaviour:
    """What vLLM does for checkpoints of these quantisation methods from a release on."""

    methods: frozenset[str]
    since: str

    def holds(self, method: str, version: str) -> bool:
        """Whether that release does it for that method."""
        return method in self.methods and parse_version(version) >= parse_version(self.since)


@dataclass(frozen=True, slots=True, config=STRICT)
class CutGroups(Behaviour):
    """A split may leave a GPU a part of a group, in `experts` or in dense layers.

    `half_precision`: only where the model computes in float16; `multiple`: of so many channels.
    """

    experts: bool
    half_precision: bool = False
    multiple: int = 1


class SplitRules(Entry):
    """splits.yaml, where each field is explained with its source."""

    compiled: date
    cut_groups: tuple[CutGroups, ...]
    whole_float_groups: tuple[Behaviour, ...]
    loose_columns: tuple[Behaviour, ...]
    refined_experts: tuple[Behaviour, ...]
    smallest_refined_block: int
    uncopied_kv_heads: frozenset[str]
    at_least_one_each: frozenset[str]
    evenly: frozenset[str]
    undivided_towers: frozenset[str]

    def may_cut_groups(
        self, method: str, version: str, held: int, *, experts: bool, half_precision: bool
    ) -> bool:
        """Whether that release takes `held` channels on a GPU though they end within a group."""
        return any(
            cut.experts is experts
            and cut.holds(method, version)
            and (half_precision or not cut.half_precision)
            and held % cut.multiple == 0
            for cut in self.cut_groups
        )


def holds(behaviours: Iterable[Behaviour], method: str, version: str) -> bool:
    """Whether that release does any of it for that method."""
    return any(behaviour.holds(method, version) for behaviour in behaviours)


@lru_cache(maxsize=1)
def load_split_rules() -> SplitRules:
    """The rules that come with this package, read once.

    Raises pydantic.ValidationError when the data file breaks its layout.
    """
    return SplitRules.model_validate(read_data_file("splits.yaml"))
