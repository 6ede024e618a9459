"""``oneop package --triton``: a model and its native library as a model repository of Triton Inference Server.

Triton hands the library's path to ONNX Runtime as it is, so the path is that of the machine that serves: the repository
is seen there in a folder of its own, /models in all of NVIDIA's examples.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oneop.definition.dtypes import DTYPES
from oneop.errors import BuildError, ExportError
from oneop.inspection.checking import notes_of_weights
from oneop.inspection.reading import mapped, read
from oneop.inspection.wire import Wire
from oneop.kernels.literals import c_string
from oneop.targets.building import build
from oneop.targets.onnxruntime.sessions import session

_TYPES = {
    "float32": "FP32",
    "float64": "FP64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
}
_TRITON_TYPES = {
    **{dtype.onnx_type: f"TYPE_{_TYPES[dtype.name]}" for dtype in DTYPES if dtype.name in _TYPES},
    "tensor(string)": "TYPE_STRING",
}
# Fields of onnx.proto, on the way from a model to the shape of an input or output.
_GRAPH, _VALUES, _NAME, _TYPE, _TENSOR, _SHAPE = 7, (11, 12), 1, 2, 1, 2


@dataclass(frozen=True)
class _Tensor:
    """An input or output; a size that the file does not state is a name, or None."""

    name: str
    type: str
    dims: tuple[int | str | None, ...]


def model_repository(
    file: str | Path,
    model: str | Path,
    output_dir: str | Path,
    *,
    name: str | None = None,
    max_batch_size: int = 0,
    mount: str = "/models",
) -> Path:
    """Writes ``output_dir/<name>``: config.pbtxt, the library, and the model as version 1. Returns that folder.

    Args:
        file: the Python file that defines the operators.
        model: the ONNX file; its weights, where they are in files beside it, are copied too.
        output_dir: the repository. The model must not be in it yet.
        name: of the model; that of its file if not given.
        max_batch_size: 0 leaves batches to the client. Otherwise Triton makes batches of up to that many: the first
            dimension of every input and output has to be that of the batch, dynamic and of one name.
        mount: the folder in which the server sees the repository.

    Raises BuildError or ExportError where something does not go; nothing is written then.
    """
    source, repository = Path(model), Path(output_dir)
    title = _checked_name(source.stem if name is None else name)
    found = read(source)
    missing = notes_of_weights(found)
    if missing:
        raise ExportError(f"{source}: {missing[0]} Export the model again, or copy its weights beside it.")
    target = repository / title
    if target.exists():
        raise BuildError(f"{target} exists. Remove it, or pass another --name.")
    with tempfile.TemporaryDirectory() as folder:
        library = build(file, "onnxruntime", folder)
        inputs, outputs = _tensors(source, library)
        config = config_text(
            title,
            str(PurePosixPath(mount) / title / library.name),
            _batched(inputs, max_batch_size, title),
            _batched(outputs, max_batch_size, title),
            max_batch_size,
        )
        _write(target, config, library, source, list(found.external))
    return target.resolve()


def config_text(
    name: str, library: str, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], max_batch_size: int = 0
) -> str:
    """The text of config.pbtxt."""
    lines = [
        f"name: {c_string(name)}",
        'platform: "onnxruntime_onnx"',
        'backend: "onnxruntime"',
        f"max_batch_size: {max_batch_size}",
        *(line for item in inputs for line in _tensor_lines("input", item)),
        *(line for item in outputs for line in _tensor_lines("output", item)),
        "model_operations {",
        f"  op_library_filename: {c_string(library)}",
        "}",
    ]
    if max_batch_size:
        lines.append("dynamic_batching { }")
    return "\n".join([*lines, ""])


def _tensor_lines(field: str, tensor: _Tensor) -> Iterator[str]:
    """Triton has no tensors without dimensions: one of a single element stands for them."""
    dims = ", ".join(str(dim) if isinstance(dim, int) else "-1" for dim in tensor.dims)
    yield f"{field} {{"
    yield f"  name: {c_string(tensor.name)}"
    yield f"  data_type: {tensor.type}"
    yield f"  dims: [ {dims or '1'} ]"
    if not tensor.dims:
        yield "  reshape { shape: [ ] }"
    yield "}"


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise BuildError(
            f"{name!r} is not a name for a model of Triton: it may hold letters, digits, `_`, `-` and `.`, and does not"
            " begin with the last two. Pass another --name."
        )
    return name


def _tensors(model: Path, library: Path) -> tuple[list[_Tensor], list[_Tensor]]:
    """As ONNX Runtime sees them with the library: it loads the model as Triton will."""
    try:
        loaded = session(model, [library], providers=["CPUExecutionProvider"])
    except (BuildError, ExportError):
        raise
    except Exception as error:
        raise ExportError(f"{model}: ONNX Runtime does not load it with {library.name}: {error}") from error
    stated = _stated_shapes(model)
    return (
        [_tensor(model, value, stated) for value in loaded.get_inputs()],
        [_tensor(model, value, stated) for value in loaded.get_outputs()],
    )


def _tensor(model: Path, value: "object", stated: set[str]) -> _Tensor:
    name, kind, dims = value.name, value.type, tuple(value.shape)  # type: ignore[attr-defined]
    if kind not in _TRITON_TYPES:
        raise ExportError(f"{model}: `{name}` is a {kind}, and Triton has no such type. Change the model's interface.")
    if not dims and name not in stated:  # ONNX Runtime shows a shape that nobody knows as that of a scalar
        raise ExportError(
            f"{model}: the number of dimensions of `{name}` is not known, and Triton has to know it. Export the model"
            " again, with shapes."
        )
    return _Tensor(name, _TRITON_TYPES[kind], dims)


def _stated_shapes(model: Path) -> set[str]:
    """The inputs and outputs whose shape stands in the file."""
    found = set()
    with mapped(model) as content:
        wire = Wire(content)
        for graph in _parts(wire, (0, len(content)), _GRAPH):
            for number in _VALUES:
                for value in _parts(wire, graph, number):
                    shapes = [
                        shape
                        for kind in _parts(wire, value, _TYPE)
                        for tensor in _parts(wire, kind, _TENSOR)
                        for shape in _parts(wire, tensor, _SHAPE)
                    ]
                    for begin, end in _parts(wire, value, _NAME):
                        if shapes:
                            found.add(bytes(content[begin:end]).decode())
    return found


def _parts(wire: Wire, span: tuple[int, int], wanted: int) -> list[tuple[int, int]]:
    return [(begin, end) for number, _, begin, end in wire.fields(span) if number == wanted]


def _batched(tensors: Sequence[_Tensor], max_batch_size: int, model: str) -> list[_Tensor]:
    """Without the dimension of the batch, where Triton makes batches."""
    if max_batch_size < 0:
        raise BuildError(f"--max-batch-size is {max_batch_size}. Pass 0 or more.")
    if max_batch_size == 0:
        return list(tensors)
    leading = {tensor.dims[0] if tensor.dims else 1 for tensor in tensors}
    for tensor in tensors:
        if not tensor.dims or isinstance(tensor.dims[0], int) or len(leading) > 1:
            shown = ", ".join("?" if dim is None else str(dim) for dim in tensor.dims)
            raise BuildError(
                f"{model}: `{tensor.name}` has shape ({shown}), and Triton can make batches only along a first"
                " dimension that is dynamic, and the same in every input and output. Leave --max-batch-size out, or"
                " export the model with that dimension named in dynamic_shapes."
            )
    return [_Tensor(tensor.name, tensor.type, tensor.dims[1:]) for tensor in tensors]


def _write(target: Path, config: str, library: Path, model: Path, weights: Sequence[str]) -> None:
    """The folder appears with everything in it."""
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
        folder = Path(temporary)
        folder.chmod(0o755)
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
        shutil.copyfile(library, folder / library.name)
        (folder / library.name).chmod(0o755)
        (folder / "1").mkdir()
        shutil.copyfile(model, folder / "1" / "model.onnx")
        for location in weights:
            place = folder / "1" / location
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model.parent / location, place)
        os.rename(folder, target)
        temporary = None
    except OSError as error:
        raise BuildError(
            f"the model cannot be written to {target}: {error.strerror or error}. Name a folder that can be written to,"
            " or make room."
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
