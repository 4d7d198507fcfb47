"""Loads the data files into the catalogue."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml
from pydantic import TypeAdapter

from tonnage.catalog.architectures import Architectures
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.catalog.schema import (
    AcceleratorsFile,
    ArchitecturesFile,
    EnginesFile,
    ImagesFile,
    PricesFile,
    RulesFile,
)


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalogue that comes with this package, read once.

    Raises pydantic.ValidationError when a data file breaks its layout.
    """
    rules = RulesFile.model_validate(_read("rules.yaml"))
    architectures = _load_architectures()
    engines = EnginesFile.model_validate(_read("engines.yaml"))
    return Catalog(
        accelerators=_load_accelerators(),
        images=ImagesFile.model_validate(_read("images.yaml")).images,
        releases=_resolve_releases(engines, architectures),
        default_release=engines.default,
        rules=rules.rules,
        method_families=rules.method_families,
        architectures=architectures,
    )


def _read(name: str) -> object:
    text = resources.files("tonnage.catalog").joinpath("data", name).read_text(encoding="utf-8")
    return yaml.safe_load(text)


def _load_accelerators() -> Mapping[str, Accelerator]:
    prices = PricesFile.model_validate(_read("prices.yaml")).prices
    entries = AcceleratorsFile.model_validate(_read("accelerators.yaml")).accelerators
    return {
        entry.id: entry.to_accelerator(prices[entry.id].to_price() if entry.id in prices else None)
        for entry in entries
    }


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


def _load_architectures() -> Architectures:
    file = ArchitecturesFile.model_validate(_read("architectures.yaml"))
    return Architectures(
        served=file.served,
        no_pipeline=file.no_pipeline,
        pooling=file.pooling,
        draft=file.draft,
        removed=file.removed,
        plugins=file.plugins,
        unsized={name: reason for reason, names in file.unsized.items() for name in names},
        families=file.families,
    )
