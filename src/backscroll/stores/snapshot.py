"""A user's columns in a file beside the store, mapped into memory by the next process instead of being read again.

Derived, and never trusted over the store: the file says up to which line and vector it goes and how often lines had
been deleted, and whoever maps it compares that with the store and reads what came later from there. Behind each
column the file has room, in which it grows in memory alone (copy on write). A file is never changed: a new one takes
its place. Knows nothing about what the columns mean.

    8 bytes   "BkscCol1"
    8 bytes   length of the head, little-endian
    head      JSON: "state", what the writer noted; "columns", name -> [dtype, width or 0, count, capacity, offset]
    columns   each at its offset, a multiple of 64
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from backscroll.stores.column import Column, with_room

_MAGIC = b"BkscCol1"
_ALIGNMENT = 64

Columns = Mapping[str, Column[Any]]


def write(path: Path, state: Mapping[str, Any], columns: Columns) -> None:
    """Write columns into a new file, and wait until it is on disk. Raises: OSError."""
    offset = 0
    described: dict[str, Any] = {}
    for name, column in columns.items():
        values = column.values
        capacity = with_room(len(values))
        width = values.shape[1] if values.ndim == 2 else 0
        described[name] = [values.dtype.str, width, len(values), capacity, offset]
        offset += _aligned(capacity * max(width, 1) * values.dtype.itemsize)
    head = json.dumps({"state": state, "columns": described}, ensure_ascii=True).encode()
    begin = _aligned(len(_MAGIC) + 8 + len(head))
    with path.open("wb") as file:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        for name, column in columns.items():
            file.seek(begin + described[name][4])  # what is skipped takes no space where files may have holes
            file.write(np.ascontiguousarray(column.values).data)
        file.truncate(begin + offset)
        file.flush()
        os.fsync(file.fileno())


def state_of(path: Path) -> dict[str, Any] | None:
    """What the writer noted; None where the file is none, or is cut off."""
    try:
        with path.open("rb") as file:
            return _head(file)["state"]  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def mapped(path: Path) -> tuple[dict[str, Any], dict[str, Column[Any]]]:
    """What the writer noted, and the columns; what is changed in them stays in memory.

    Both are of one file, also where another takes its place meanwhile.

    Raises: OSError; ValueError where the file is none, or is cut off.
    """
    with path.open("rb") as opened:
        head = _head(opened)
        file = np.asarray(np.memmap(opened, np.uint8, "c"))  # an array of its own kind would be slower
    columns = {}
    for name, (kind, width, count, capacity, offset) in head["columns"].items():
        start = head["begin"] + offset
        stop = start + capacity * max(width, 1) * np.dtype(kind).itemsize
        shape = (capacity, width) if width else (capacity,)
        columns[name] = Column(file[start:stop].view(kind).reshape(shape), count, is_mapped=True)
    return head["state"], columns


def _head(file: BinaryIO) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(len(_MAGIC) + 8)
    length = int.from_bytes(start[len(_MAGIC) :], "little")
    if not start.startswith(_MAGIC) or length > size:
        raise ValueError("no columns are in the file")
    head: dict[str, Any] = json.loads(file.read(length))
    head["begin"] = _aligned(len(start) + length)
    ends = [o + c * max(w, 1) * np.dtype(kind).itemsize for kind, w, _, c, o in head["columns"].values()]
    if size < head["begin"] + max(ends, default=0):
        raise ValueError("the columns in the file are cut off")
    return head


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
