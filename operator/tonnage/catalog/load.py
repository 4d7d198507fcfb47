"""Loads the data files into the catalogue."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.cloud_labels import load_cloud_matches
from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.model import Accelerator
from tonnage.catalog.models.architectures import Architectures
from tonnage.catalog.partitioning import load_partitioning
from tonnage.catalog.schema import (
    AcceleratorsFile,
    ArchitecturesFile,
    EnginesFile,
    ImagesFile,
    PricesFile,
    QuantizationMethodsFile,
    RulesFile,
)
from tonnage.catalog.vllm.quantization_methods import QuantizationMethods
from tonnage.catalog.vllm.releases import EngineRelease


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """Loads this package's catalogue once.

    Raises pydantic.ValidationError for an invalid data file.
    """
    architectures = _load_architectures()
    engines = EnginesFile.model_validate(read_data_file("engines.yaml"))
    return Catalog(
        accelerators=_load_accelerators(),
        images=ImagesFile.model_validate(read_data_file("images.yaml")).images,
        releases=_resolve_releases(engines, architectures),
        default_release=engines.default,
        rules=RulesFile.model_validate(read_data_file("rules.yaml")).rules,
        quantization_methods=_load_quantization_methods(),
        architectures=architectures,
    )


def _load_accelerators() -> Mapping[str, Accelerator]:
    """The accelerators with their prices, clouds' labels and partitions."""
    prices = PricesFile.model_validate(read_data_file("prices.yaml")).prices
    entries = AcceleratorsFile.model_validate(read_data_file("accelerators.yaml")).accelerators
    clouds, partitioning = load_cloud_matches(), load_partitioning()
    accelerators = {}
    for entry in entries:
        price = prices[entry.id].to_price() if entry.id in prices else None
        accelerator = entry.to_accelerator(price)
        accelerators[entry.id] = replace(
            accelerator,
            matches=(*accelerator.matches, *clouds.get(entry.id, ())),
            compute_partitions=partitioning.compute_partitions_of(entry.id),
            mig=partitioning.mig_of(entry.id),
        )
    return accelerators


def _resolve_releases(
    engines: EnginesFile, architectures: Architectures
) -> Mapping[str, EngineRelease]:
    """Completes each entry with the fields of an earlier one, its `like`."""
    resolved: dict[str, Mapping[str, Any]] = {}
    for version, entry in engines.releases.items():
        inherited = resolved[entry["like"]] if "like" in entry else {}
        own = {key: value for key, value in entry.items() if key != "like"}
        resolved[version] = {**inherited, **own}
    adapter = TypeAdapter(EngineRelease)
    return {
        version: adapter.validate_python(
            {"version": version, "no_pipeline": architectures.no_pipeline, **fields}
        )
        for version, fields in resolved.items()
    }


def _load_quantization_methods() -> QuantizationMethods:
    file = QuantizationMethodsFile.model_validate(read_data_file("quantization_methods.yaml"))
    return QuantizationMethods(file.methods, file.families)


def _load_architectures() -> Architectures:
    file = ArchitecturesFile.model_validate(read_data_file("architectures.yaml"))
    return Architectures(
        served=file.served,
        no_pipeline=file.no_pipeline,
        pooling=file.pooling,
        draft=file.draft,
        removed=file.removed,
        plugins=file.plugins,
        unsized={name: reason for reason, names in file.unsized.items() for name in names},
        transformers_code=file.transformers_code,
        text_only=file.text_only,
        families=file.families,
    )
