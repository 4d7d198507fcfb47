"""Where an engine gets the weights of its model from."""

from enum import StrEnum


class Medium(StrEnum):
    """The Hub, a PersistentVolumeClaim, an OCI image, a disk of the node, a path in the container,
    or an object store."""

    HUB = "Hub"
    VOLUME = "Volume"
    IMAGE = "Image"
    NODE_DISK = "NodeDisk"
    PATH = "Path"
    OBJECT_STORE = "ObjectStore"
