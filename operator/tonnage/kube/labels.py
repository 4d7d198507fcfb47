"""Selecting objects by their labels: at the API server, and as it does where there is none."""

from tonnage.kube.protocol import Labels, Object


def select_labels(wanted: Labels) -> str:
    """A label selector as the API server takes it."""
    return ",".join(
        f"!{key}" if value is None else f"{key}={value}" for key, value in wanted.items()
    )


def has_labels(obj: Object, wanted: Labels) -> bool:
    """Whether an object that somebody has read is one that the API server would select."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())
