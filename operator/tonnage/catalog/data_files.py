"""The data files of this package, as YAML reads them."""

from importlib import resources

import yaml


def read_data_file(name: str) -> object:
    """The content of `catalog/data/<name>`, unchecked: each caller knows the layout of its file."""
    text = resources.files("tonnage.catalog").joinpath("data", name).read_text(encoding="utf-8")
    return yaml.safe_load(text)
