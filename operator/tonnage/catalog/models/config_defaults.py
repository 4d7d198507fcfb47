"""Defaults that transformers uses for fields missing in config.json."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import Entry, read_data_file


class ConfigDefaults(Entry):
    """config_defaults.yaml: fields by `model_type` of the config or of its sub-config."""

    compiled: date
    defaults: Mapping[str, Mapping[str, int]]

    def of(self, model_type: str) -> Mapping[str, int]:
        """The default fields of that type, empty for an unlisted one."""
        return self.defaults.get(model_type, {})


@lru_cache(maxsize=1)
def load_config_defaults() -> ConfigDefaults:
    """Loads this package's defaults once.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return ConfigDefaults.model_validate(read_data_file("config_defaults.yaml"))
