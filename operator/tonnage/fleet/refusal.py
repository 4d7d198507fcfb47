"""Why nothing can be planned on the devices behind one resource of a node."""


class NotPlannableError(Exception):
    """The message names what stands on the node and what to do.

    `in_parts`: the devices are shares or parts of GPUs that no declaration makes plannable.
    """

    def __init__(self, reason: str, *, in_parts: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.in_parts = in_parts


class ContradictionError(NotPlannableError):
    """Labels that cannot all be true of one kind of card; no declaration makes them so."""
