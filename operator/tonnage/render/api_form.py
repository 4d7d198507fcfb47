"""Pieces of the user's spec as the API server gives them back."""

from typing import Any

from tonnage.api.schema import ApiModel


def api_form(piece: ApiModel) -> dict[str, Any]:
    """`piece` without what the API server drops: false and empty strings, which are the zero values
    of these fields. Else an applied object and the stored one would differ for ever."""
    stripped: dict[str, Any] = _strip(piece.to_dict())
    return stripped


def _strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip(inner) for key, inner in value.items() if inner not in ("", False)}
    return value
