"""The seal of an exported policy: its SHA-256 as the last entry of its metadata, read and written without an ONNX library.

A bit that is another in a weight is a valid network that acts otherwise. An ONNX file is a protobuf message, to which fields can
be added by appending their bytes, so the file is its body and an entry `sha256` of `metadata_props` that any reader understands.
"""

from __future__ import annotations

import hashlib

# Field 14 of ModelProto (metadata_props), 76 bytes long: field 1 (key) "sha256", and field 2 (value), 66 bytes: JSON text.
_KEY = b"\x0a\x06sha256\x12\x42"
_HEAD = bytes([14 << 3 | 2, len(_KEY) + 66]) + _KEY
SIZE = len(_HEAD) + 66


def seal(body: bytes) -> bytes:
    """What is appended to a model so that it holds the SHA-256 of all before it."""
    return _HEAD + f'"{hashlib.sha256(body).hexdigest()}"'.encode()


def is_as_written(data: bytes) -> bool:
    """Whether a file has the SHA-256 that it was sealed with; one without a seal is taken as it is."""
    return _KEY not in data or data[-SIZE:] == seal(data[:-SIZE])
