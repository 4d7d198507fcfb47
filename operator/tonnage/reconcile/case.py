"""The name by which the controller's wiring still asks for `Dependencies`."""

from tonnage.reconcile.context import Dependencies as World

__all__ = ["World"]
