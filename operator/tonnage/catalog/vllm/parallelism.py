"""Parallelisms that vLLM accepts or refuses, by quantisation method, class and release."""

from collections.abc import Iterable
from datetime import date
from functools import lru_cache

from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import STRICT
from tonnage.catalog.vllm.releases import parse_version


@dataclass(frozen=True, slots=True, config=STRICT)
class Behaviour:
    """A behaviour of vLLM with these quantisation methods from a release on."""

    methods: frozenset[str]
    since: str

    def holds(self, method: str, version: str) -> bool:
        """Whether that release behaves so with that method."""
        return method in self.methods and parse_version(version) >= parse_version(self.since)


@dataclass(frozen=True, slots=True, config=STRICT)
class CutGroups(Behaviour):
    """A GPU may hold a part of a group, in `experts` or in dense layers.

    `half_precision`: only if the model computes in float16; `multiple`: only multiples of so many
    channels.
    """

    experts: bool
    half_precision: bool = False
    multiple: int = 1


class SplitRules(Entry):
    """parallelism.yaml, which explains each field and names its source."""

    compiled: date
    cut_groups: tuple[CutGroups, ...]
    whole_float_groups: tuple[Behaviour, ...]
    loose_columns: tuple[Behaviour, ...]
    refined_experts: tuple[Behaviour, ...]
    smallest_refined_block: int
    uncopied_kv_heads: frozenset[str]
    at_least_one_each: frozenset[str]
    evenly: frozenset[str]
    undivided_encoders: frozenset[str]
    over_nodes_since: str
    embeddings_on_all_stages: frozenset[str]
    head_on_all_stages: frozenset[str]

    def runs_over_nodes(self, version: str) -> bool:
        """Whether that release can run a replica on several nodes."""
        return parse_version(version) >= parse_version(self.over_nodes_since)

    def may_cut_groups(
        self, method: str, version: str, channels: int, *, experts: bool, half_precision: bool
    ) -> bool:
        """Whether that release accepts `channels` on a GPU although they end within a group."""
        return any(
            cut.experts is experts
            and cut.holds(method, version)
            and (half_precision or not cut.half_precision)
            and channels % cut.multiple == 0
            for cut in self.cut_groups
        )


def holds(behaviours: Iterable[Behaviour], method: str, version: str) -> bool:
    """Whether any of the behaviours holds for that method and release."""
    return any(behaviour.holds(method, version) for behaviour in behaviours)


@lru_cache(maxsize=1)
def load_split_rules() -> SplitRules:
    """Loads this package's rules once.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return SplitRules.model_validate(read_data_file("parallelism.yaml"))
