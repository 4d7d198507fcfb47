"""Makes the parts of a question from settings, as flags, a case and extra arguments give them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tonnage.catalog.model import Accelerator, Vendor
from tonnage.cli.errors import InputError
from tonnage.cli.fit.vllm.extra_arguments import (
    BadArgumentError,
    ExtraArguments,
    parse_extra_arguments,
)
from tonnage.cli.fit.vllm.flags import engine_settings
from tonnage.fit.model import EngineOptions, Parallelism

_RESOURCES: Final = {Vendor.NVIDIA: "nvidia.com/gpu", Vendor.AMD: "amd.com/gpu"}


def read_extra_arguments(where: str, arguments: Sequence[str]) -> ExtraArguments:
    """Parse extra arguments of a server. Raises InputError naming `where` they were given."""
    try:
        return parse_extra_arguments(arguments)
    except BadArgumentError as error:
        raise InputError(f"{where}: {error}") from None


def read_parallelism(settings: Mapping[str, Any], nodes: int = 1) -> Parallelism:
    """The parallelism in the settings, by default one pipeline stage on each node, or one for all
    data-parallel ranks.

    Raises InputError where the GPUs cannot be divided among the nodes.
    """
    tensor = settings.get("tensor_parallel_size") or 1
    data = settings.get("data_parallel_size") or 1
    stages = settings.get("pipeline_parallel_size") or (nodes if data == 1 else 1)
    if tensor * stages * data % nodes:
        field = "--data-parallel-size" if data > 1 else "--pipeline-parallel-size"
        value = data if data > 1 else stages
        raise InputError(f"{field} {value}: with --nodes {nodes}, expected a multiple of {nodes}")
    return Parallelism(tensor=tensor, pipeline=stages, data=data, nodes=nodes)


def list_layout_notes(settings: Mapping[str, Any]) -> Iterator[str]:
    """Explain the figures of a data-parallel layout."""
    ranks = settings.get("data_parallel_size") or 1
    if ranks > 1:
        yield f"data parallel {ranks}: the KV cache and the requests are those of one rank"


def read_engine_options(
    settings: Mapping[str, Any], version: str, default_length: int, stated: frozenset[str]
) -> EngineOptions:
    """The engine options in the settings, with the extra arguments as `stated`."""
    options = EngineOptions(version, default_length, stated=stated)
    return replace(options, **engine_settings(settings))


def make_unlisted_accelerator(vendor: Vendor, gpus_per_node: int | None) -> Accelerator:
    """A card outside the catalogue: the user gives its memory, and its throughput is unknown."""
    return Accelerator(
        id=f"unlisted-{vendor}",
        vendor=vendor,
        name=f"unlisted {vendor.upper()} card",
        arch="unknown",
        resource=_RESOURCES[vendor],
        gpus_per_node=gpus_per_node,
        memory_bytes=None,
        memory_bytes_vf=None,
        memory_bandwidth=None,
        bf16_flops=None,
        fp8_flops=None,
        fp4_flops=None,
        link_bandwidth=None,
        pair_bandwidth=None,
        fp8_encoding=None,
        native_fp4=False,
        supported=True,
        unsupported_reason=None,
        matches=(),
        pci_device_ids=(),
        pci_device_ids_vf=(),
        price=None,
    )
