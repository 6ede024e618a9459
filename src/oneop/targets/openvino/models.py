"""What has to be known of a model before OpenVINO reads it: which operators it names, and their fingerprints.

Looks for the bytes that an ONNX file, or OpenVINO's own, has for them. Neither file is parsed, and weights are passed
over: a model may be large, and OpenVINO is about to read it anyway.
"""

import io
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Protocol

from oneop.definition.record import Definition
from oneop.errors import ExportError
from oneop.targets.openvino.table import type_name

_FINGERPRINT = "oneop.fingerprint."
_TYPE, _DOMAIN = b"\x22", b"\x3a"  # fields of NodeProto: op_type and domain, with their length behind


class ModelProto(Protocol):
    """``onnx.ModelProto``."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


class Content:
    """The bytes of a model file."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def names(self, definition: Definition) -> bool:
        """Whether a node may be of this operator: it is where both names of it stand in the file."""
        if re.search(f'type="{re.escape(type_name(definition))}"'.encode(), self._data):
            return True
        parts = ((_TYPE, definition.onnx_name), (_DOMAIN, definition.namespace))
        return all(self._holds(field, text.encode()) for field, text in parts)

    def fingerprint(self, name: str) -> str | None:
        """That of an operator's definition, as the file was exported; None where it says nothing."""
        key = re.escape((_FINGERPRINT + name).encode())
        found = re.search(key + rb'(?:\x12\x10|" value=")([0-9a-f]{16})', self._data)
        return None if found is None else found[1].decode()

    def _holds(self, field: bytes, text: bytes) -> bool:
        return bool(re.search(re.escape(field + _varint(len(text)) + text), self._data))


@contextmanager
def opened(model: "str | PathLike[str] | bytes | ModelProto") -> Iterator[tuple[Content, Any]]:
    """The content of a model, and what ``Core.read_model`` takes for it.

    Raises ExportError where there is no such file.
    """
    if not isinstance(model, str | PathLike):
        data = model if isinstance(model, bytes) else model.SerializeToString()
        yield Content(data), io.BytesIO(data)
        return
    path = fspath(model)
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # an empty file cannot be mapped
        raise ExportError(f"{path} is empty. Export the model again.") from None
    except OSError as error:
        raise ExportError(
            f"{path} cannot be read: {error.strerror}. Give the path of an ONNX model, or of the .xml of one that"
            " OpenVINO saved."
        ) from error
    with mapped:
        yield Content(mapped), path


def _varint(value: int) -> bytes:
    """As protobuf writes a length."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
