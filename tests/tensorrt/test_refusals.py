"""What TensorRT cannot express: refused when the library is built, with the parameter, the target and a way out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import Bool, Float, Float64, Int, Int64, UInt8
from torch import Tensor

import oneop
from oneop.definition.dtypes import BY_NAME
from oneop.definition.signature import definition_of
from oneop.errors import BuildError, DefinitionError
from oneop.kernels.spec import KernelOptions, KernelSpec
from oneop.targets.tensorrt.checks import served
from oneop.targets.tensorrt.library import build_library

CUDA = Path("/kernels/k.cu")


def strings(x: Float[Tensor, "n"], *, names: list[str] = ["a"]) -> Float[Tensor, "n"]: ...  # noqa: B006


def version(x: Float[Tensor, "n"], *, plugin_version: str = "2") -> Float[Tensor, "n"]: ...


def doubles(x: Float64[Tensor, "n"]) -> Float64[Tensor, "n"]: ...


def masked(x: Float[Tensor, "n"], mask: Bool[Tensor, "n"]) -> Float[Tensor, "n"]: ...


def bytes_out(x: Float[Tensor, "n"]) -> UInt8[Tensor, "n"]: ...


def many(x: Float[Tensor, "a b c d e f g h i"]) -> Float[Tensor, "a"]: ...


def wide(x: Float[Tensor, "a"]) -> Float[Tensor, "a a a a a a a a a"]: ...


def softmax(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...


def plain(x: Float[Tensor, "n"], index: Int[Tensor, "k"]) -> Int64[Tensor, "k"]: ...


def spec(function: Callable[..., Any], *sources: Path, dtypes: tuple[str, ...] | None = None) -> KernelSpec:
    chosen = None if dtypes is None else tuple(BY_NAME[name] for name in dtypes)
    name = f"demo::{function.__name__}"
    return KernelSpec(definition_of(function, name), sources, KernelOptions(dtypes=chosen), "cuda")


TAKES = "TensorRT's plugins take float32, float16, bfloat16, int8, int32, int64."


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            spec(strings, CUDA),
            "demo::strings: attribute `names` is list[str], and a field of a TensorRT plugin holds one string at most."
            " Make it a str with a separator in it, or a list[int]; or leave this operator out, and export with"
            ' fallback="function" or "inline".',
        ),
        (
            spec(version, CUDA),
            "demo::version: attribute `plugin_version` has a meaning of its own to TensorRT's ONNX parser. Give it"
            " another name.",
        ),
        (
            spec(doubles, CUDA),
            f"demo::doubles: input `x` is Float64, with kernels for float64; {TAKES} Declare it Float32 and convert in"
            ' the model; or leave this operator out, and export with fallback="function".',
        ),
        (
            spec(masked, CUDA),
            f"demo::masked: input `mask` is Bool, with kernels for bool; {TAKES} Declare it Int32 and convert in the"
            ' model; or leave this operator out, and export with fallback="function".',
        ),
        (
            spec(bytes_out, CUDA),
            f"demo::bytes_out: output `out` is UInt8, with kernels for uint8; {TAKES} Declare it Int32 and convert in"
            ' the model; or leave this operator out, and export with fallback="function".',
        ),
        (
            spec(plain, CUDA, dtypes=("float64", "int16", "uint16")),
            f"demo::plain: input `x` is Float, with kernels for float64; {TAKES} Write the kernel for one of these too,"
            " and name it in dtypes=[...]: float32, float16, bfloat16.",
        ),
        (
            spec(many, CUDA),
            'demo::many: input `x` is "a b c d e f g h i", 9 dimensions; TensorRT\'s tensors have 8 at most. Merge some'
            " of them.",
        ),
        (
            spec(wide, CUDA),
            'demo::wide: output `out` is "a a a a a a a a a", 9 dimensions; TensorRT\'s tensors have 8 at most. Merge'
            " some of them.",
        ),
        (
            spec(softmax, CUDA),
            "demo::softmax: its node is of type `Softmax`, and TensorRT's ONNX parser takes that for its own operator,"
            " whatever the node's domain is: the plugin would never run. Give the operator another name, such as"
            ' onnx_name="MySoftmax", and export the model again.',
        ),
        (
            spec(plain),
            "demo::plain: TensorRT runs CUDA kernels, and this operator has none. Write the same function in a CUDA"
            ' file and name it: kernels=[..., "plain.cu"].',
        ),
    ],
    ids=lambda item: item.definition.base if isinstance(item, KernelSpec) else "",
)
def test_what_tensorrt_cannot_express_is_refused(refused: KernelSpec, message: str) -> None:
    with pytest.raises(BuildError) as caught:
        served([refused])
    assert str(caught.value) == message


def test_what_it_can_express_is_taken() -> None:
    taken = spec(plain, CUDA, dtypes=("float32", "float64", "int16", "int32"))
    assert served([taken]) == (taken,)


def test_two_operators_of_one_node_type_are_refused() -> None:
    other = KernelSpec(definition_of(plain, "other::plain"), (CUDA,), KernelOptions(), "cuda")
    with pytest.raises(BuildError) as caught:
        served([spec(plain, CUDA), other])
    assert str(caught.value) == (
        "other::plain: demo::plain is a node of type `Plain` too, and TensorRT's ONNX parser does not look at a node's"
        " domain. Give one of them another onnx_name."
    )


def test_two_operators_of_one_base_name_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    other = KernelSpec(definition_of(plain, "other::plain", onnx_name="OtherPlain"), (CUDA,), KernelOptions(), "cuda")
    with pytest.raises(DefinitionError) as caught:
        build_library([spec(plain, CUDA), other], tmp_path / "out")
    assert str(caught.value) == (
        "other::plain: demo::plain in the same file has kernels too, and both headers would be plain.h. Rename one of"
        " them, or move it to another file."
    )
    assert not (tmp_path / "out").exists()


def test_an_operator_without_a_cuda_kernel_is_refused_by_the_public_call(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "scaled_linear_cpp" / "scaled_linear.py"
    with pytest.raises(BuildError) as caught:
        oneop.build(example, "tensorrt", tmp_path)
    assert str(caught.value) == (
        "demo::scaled_linear: TensorRT runs CUDA kernels, and this operator has none. Write the same function in a CUDA"
        ' file and name it: kernels=[..., "scaled_linear.cu"].'
    )
    assert not list(tmp_path.iterdir())
