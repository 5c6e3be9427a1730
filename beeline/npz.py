"""NumPy's .npz container, for arrays of numbers alone: nothing is pickled, and nothing that is read is executed."""

from __future__ import annotations

import hashlib
import io
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline.files import Written, durable

if TYPE_CHECKING:  # NumPy counts the cores when it is imported: a worker takes the locks of its cores before that
    from numpy.typing import NDArray


def write(path: Path, arrays: Mapping[str, NDArray]) -> Written:
    """Write and sync arrays of numbers in NumPy's .npz container, uncompressed; durable but not atomic by itself."""
    _check_numbers(arrays)
    with durable(path) as stream:
        _pack(stream, arrays)
    return stream.written()


class _Digest:
    """A write-only stream that keeps nothing but the hash."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def sha256(arrays: Mapping[str, NDArray]) -> str:
    """The SHA-256 of the file that `write` would write."""
    _check_numbers(arrays)
    stream = _Digest()
    _pack(stream, arrays)
    return stream.hash.hexdigest()


def _check_numbers(arrays: Mapping[str, NDArray]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"array {name!r} has dtype {array.dtype}; only booleans, integers and floats are stored")
        if "\0" in name:
            raise ValueError(f"array name {name!r} has a null character")


def _pack(stream: Any, arrays: Mapping[str, NDArray]) -> None:
    import numpy as np

    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as container:
        for name, array in arrays.items():
            with container.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read(data: bytes) -> dict[str, NDArray]:
    """Read what `write` wrote; ValueError for anything else, and nothing in it is ever executed."""
    arrays: dict[str, NDArray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as container:
            for info in container.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or name in arrays:
                    raise ValueError(f"member {info.filename!r} is compressed, encrypted or there twice")
                array = _array(container.read(info))
                if array is None:
                    raise ValueError(f"member {info.filename!r} is not an array of numbers")
                arrays[name] = array
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, OSError) as error:
        raise ValueError(f"not a readable .npz file: {error}") from error
    return arrays


# A member as `write` and `np.savez` write it: magic string, version, length of the header, and a dict of three entries.
_MEMBER = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<short>..)|\x02\x00(?P<long>....))"
    rb"(?P<header>\{'descr': '(?P<dtype>[<>|][biuf]\d{1,2})', 'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,15}, ?)*(?:\d{1,15})?)\), \} *\n)",
    re.DOTALL,
)


def _array(data: bytes) -> NDArray | None:
    """The array of numbers that a member holds; None where it holds anything else.

    NumPy's own reader evaluates the header, which raises nearly anything if it was tampered with. This one only matches it, and
    asks for no more memory than the member has: a MemoryError is the machine's and never the file's.
    """
    import numpy as np

    found = _MEMBER.match(data)
    if not found or int.from_bytes(found["short"] or found["long"], "little") != len(found["header"]):
        return None
    shape = [int(size) for size in found["shape"].replace(b" ", b"").split(b",") if size]
    try:
        dtype = np.dtype(found["dtype"].decode())
    except TypeError:  # such as <f3
        return None
    if math.prod(shape) * dtype.itemsize != len(data) - found.end():
        return None
    flat = np.frombuffer(data, dtype, offset=found.end())
    return flat.reshape(shape, order="F" if found["order"] == b"True" else "C").copy(order="K")
