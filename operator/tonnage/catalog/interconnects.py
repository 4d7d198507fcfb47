"""Networks between nodes, from interconnects.yaml."""

from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file

Gigabytes = Annotated[float, Field(gt=0)]

_ALL: Final = "all"
_GIGA: Final = 10**9


class Network(Entry):
    """A network by the resource of its adapters.

    `complete`: a pod that requests the resource can use the network, without the fields of an
    AcceleratorPool. `count` is what one pod requests.
    """

    resource: str
    complete: bool
    count: Annotated[int, Field(ge=1)] | Literal["all"]
    capabilities: tuple[str, ...] = ()
    requests: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    gigabytes_per_second_per_gpu: Gigabytes
    source: str
    date: date

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second from one GPU to another node."""
        return self.gigabytes_per_second_per_gpu * _GIGA

    def count_of(self, offered: int) -> int:
        """What a pod requests on a node that offers so many."""
        return offered if self.count == _ALL else int(self.count)


class Domain(Entry):
    """A label whose value names the NVLink domain of a node. `env_with_channel` are variables of
    pods that can use its NVLink, `env_without_channel` of those that cannot."""

    label: str
    env_with_channel: Mapping[str, str]
    env_without_channel: Mapping[str, str]
    source: str
    date: date


class Interconnects(Entry):
    """The content of interconnects.yaml."""

    compiled: date
    tcp_gigabytes_per_second_per_gpu: Gigabytes
    tcp_source: str
    domains: tuple[Domain, ...]
    networks: tuple[Network, ...]

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """What the resource of each network starts with."""
        return tuple(network.resource.removesuffix("*") for network in self.networks)

    @cached_property
    def domain_labels(self) -> tuple[str, ...]:
        """The labels of NVLink domains."""
        return tuple(domain.label for domain in self.domains)

    def domain_of(self, label: str | None) -> Domain | None:
        """The NVLink domains that a label names; None for another label."""
        return next((one for one in self.domains if one.label == label), None)

    @property
    def tcp_bytes_per_second(self) -> float:
        """Bytes per second from one GPU to another node without RDMA."""
        return self.tcp_gigabytes_per_second_per_gpu * _GIGA

    def network_of(self, resource: str) -> Network | None:
        """The network whose adapters have this resource; None for an unknown one."""
        return next((one for one in self.networks if fnmatchcase(resource, one.resource)), None)


@lru_cache(maxsize=1)
def load_interconnects() -> Interconnects:
    """Return the networks in this package, cached.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return Interconnects.model_validate(read_data_file("interconnects.yaml"))
