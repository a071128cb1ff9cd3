"""Bytes among the objects of a state dict: in the checkpoint's JSON they are base64, and a hint says what they were."""

from __future__ import annotations

import base64
import binascii
import copy
import io
from collections.abc import Mapping
from typing import Any

KINDS = ("bytes", "bytearray", "BytesIO")


def encoded(value: bytes | bytearray | io.BytesIO) -> str:
    return base64.b64encode(value.getvalue() if isinstance(value, io.BytesIO) else value).decode()


def _decoded(value: Any, kind: str) -> Any:
    """The value itself where it is no base64, as hostile files may say anything."""
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return value
    return io.BytesIO(data) if kind == "BytesIO" else bytearray(data) if kind == "bytearray" else data


def hints_of(members: Any) -> dict[str, str]:
    """What objects or items of theirs were bytes, by name."""
    found = members.get("bytes") if isinstance(members, dict) else None
    return {name: kind for name, kind in found.items() if kind in KINDS} if isinstance(found, dict) else {}


def _place(holder: list[Any], texts: list[str]) -> tuple[Any, Any]:
    """The container in which an item of an object is, and its key there."""
    container: Any = holder
    key: Any = 0
    for text in texts:
        container = container[key]
        key = int(text) if isinstance(container, list) else text
    return container, key


def restored(name: str, value: Any, hints: Mapping[str, str], others: Mapping[str, Any]) -> Any:
    """A copy of the object of that name, with its bytes as they were, and others, by their names, in their places."""
    holder: list[Any] = [copy.deepcopy(value)]
    inside = [inner for inner in hints if inner == name or inner.startswith(name + ".")]
    for inner in (*inside, *others):
        container, key = _place(holder, inner[len(name) + 1:].split(".") if inner != name else [])
        container[key] = others[inner] if inner in others else _decoded(container[key], hints[inner])
    return holder[0]
