"""What transformers fills in where a config.json is silent."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.schema import Entry


class ConfigDefaults(Entry):
    """config_defaults.yaml: fields by the `model_type` of the part of a config they belong to."""

    compiled: date
    defaults: Mapping[str, Mapping[str, int]]

    def of(self, model_type: str) -> Mapping[str, int]:
        """The fields of that type, none of one that is not listed."""
        return self.defaults.get(model_type, {})


@lru_cache(maxsize=1)
def load_config_defaults() -> ConfigDefaults:
    """The defaults that come with this package, read once.

    Raises pydantic.ValidationError when the data file breaks its layout.
    """
    return ConfigDefaults.model_validate(read_data_file("config_defaults.yaml"))
