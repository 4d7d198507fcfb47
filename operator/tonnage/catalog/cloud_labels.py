"""Labels that clouds set on their nodes, from cloud_labels.yaml."""

from collections.abc import Mapping
from datetime import date

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import LabelMatch


class CloudLabel(Entry):
    """One label of a cloud, with its values for each accelerator.

    `virtual_functions` are the accelerators that the cloud provides as virtual functions.
    """

    cloud: str
    label: str
    source: str
    date: date
    accelerators: Mapping[str, tuple[str, ...]]
    virtual_functions: frozenset[str] = frozenset()


class CloudLabelsFile(Entry):
    """cloud_labels.yaml."""

    compiled: date
    labels: tuple[CloudLabel, ...]


def load_cloud_matches() -> dict[str, tuple[LabelMatch, ...]]:
    """The label matches of all clouds by accelerator id."""
    file = CloudLabelsFile.model_validate(read_data_file("cloud_labels.yaml"))
    matches: dict[str, tuple[LabelMatch, ...]] = {}
    for entry in file.labels:
        for accelerator_id, values in entry.accelerators.items():
            virtual = accelerator_id in entry.virtual_functions
            match = LabelMatch(entry.label, values, virtual_function=virtual)
            matches[accelerator_id] = (*matches.get(accelerator_id, ()), match)
    return matches
