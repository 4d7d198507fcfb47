"""A quota of GPUs in the namespace of an object."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class GpuQuota:
    """ResourceQuota `name` allows `most` GPUs of a resource in its namespace, and pods use `used`
    of them."""

    name: str
    resource: str
    most: int
    used: int

    @property
    def left(self) -> int:
        """GPUs that further pods may request."""
        return max(0, self.most - self.used)

    def without(self, own: int) -> "GpuQuota":
        """The quota for an object whose own pods use so many of the GPUs."""
        return replace(self, used=max(0, self.used - own))

    def __str__(self) -> str:
        return f"ResourceQuota {self.name} leaves {self.left} of {self.most} {self.resource}"
