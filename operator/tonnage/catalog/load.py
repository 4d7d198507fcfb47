"""Loads the data files into the catalogue."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from tonnage.catalog.architectures import Architectures
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.cloud_labels import load_cloud_matches
from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.catalog.partitioning import load_partitioning
from tonnage.catalog.quantization_methods import QuantizationMethods
from tonnage.catalog.schema import (
    AcceleratorsFile,
    ArchitecturesFile,
    EnginesFile,
    ImagesFile,
    PricesFile,
    QuantizationMethodsFile,
    RulesFile,
)


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalogue that comes with this package, read once.

    Raises pydantic.ValidationError when a data file breaks its layout.
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
    """The accelerators, completed with prices, clouds' labels and the ways to divide them."""
    prices = PricesFile.model_validate(read_data_file("prices.yaml")).prices
    entries = AcceleratorsFile.model_validate(read_data_file("accelerators.yaml")).accelerators
    clouds, partitioning = load_cloud_matches(), load_partitioning()
    found = {}
    for entry in entries:
        price = prices[entry.id].to_price() if entry.id in prices else None
        accelerator = entry.to_accelerator(price)
        found[entry.id] = replace(
            accelerator,
            matches=(*accelerator.matches, *clouds.get(entry.id, ())),
            compute_partitions=partitioning.compute_partitions_of(entry.id),
            mig=partitioning.mig_of(entry.id),
        )
    return found


def _resolve_releases(
    engines: EnginesFile, architectures: Architectures
) -> Mapping[str, EngineRelease]:
    """Completes each entry with the fields of the one it is `like`, which stands before it."""
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
