"""Bytes among the objects of a state dict, as older versions of libdcp store them in the JSON: base64, with a hint of
their type."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

KINDS = ("bytes", "bytearray", "BytesIO")


def decoded(value: Any, kind: str) -> Any:
    """Returns the value itself if it is not base64, since hostile files may contain anything."""
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return value
    return io.BytesIO(data) if kind == "BytesIO" else bytearray(data) if kind == "bytearray" else data


def hints_of(members: Any) -> dict[str, str]:
    """The kinds of those objects, or items of objects, that were bytes, by name."""
    found = members.get("bytes") if isinstance(members, dict) else None
    return {name: kind for name, kind in found.items() if kind in KINDS} if isinstance(found, dict) else {}
