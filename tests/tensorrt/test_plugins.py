"""The compiled plugins, driven as TensorRT drives them, compared with the operators' references."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from support.tensorrt_host import NUMBERS, Answer, library, needs_headers, node_of, operators, run

pytestmark = needs_headers

GENERATOR = np.random.default_rng(0)
LINEAR = {"float32": 2e-6, "float16": 1e-2, "bfloat16": 5e-2}


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return GENERATOR.standard_normal(shape).astype(kind)


def to_torch(array: Any) -> Any:
    if isinstance(array, list):
        return [to_torch(item) for item in array]
    if array is None:
        return None
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array)


def in_32_bits(value: Any) -> Any:
    if isinstance(value, float):
        return float(np.float32(value))
    return [in_32_bits(item) for item in value] if isinstance(value, list) else value


def compare(name: str, inputs: Sequence[Any], folder: Path, options: Any = None, **values: Any) -> Answer:
    """Runs an operator of plugins.py both ways; the values are those of an ONNX file."""
    operator = operators("plugins")[name]
    answer = run(library("plugins"), node_of(operator, inputs, values), inputs, folder, **(options or {}))
    assert answer.error == "", answer.log
    assert answer.log == []
    kept = {key: in_32_bits(value) for key, value in values.items()}
    wanted = operator.reference(*map(to_torch, inputs), **kept)
    listed = list(wanted) if isinstance(wanted, tuple) else [wanted]
    assert len(answer.outputs) == len(listed)
    for found, value in zip(answer.outputs, listed, strict=True):
        assert (found.dtype.name, found.shape) == (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        close = LINEAR.get(found.dtype.name, 0.0)
        np.testing.assert_allclose(
            found.astype(np.float64), value.to(torch.float64).numpy(), rtol=close, atol=close, err_msg=name
        )
    return answer


def failure(name: str, inputs: Sequence[Any], folder: Path, options: Any = None, **values: Any) -> Answer:
    operator = operators("plugins")[name]
    answer = run(library("plugins"), node_of(operator, inputs, values), inputs, folder, **(options or {}))
    assert answer.error != ""
    return answer


# ---- the registry


def test_every_operator_has_a_creator(tmp_path: Path) -> None:
    answer = compare("quantised", [np.array([1, -128, 127], np.int8)], tmp_path)
    assert sorted(answer.facts["creators"]) == sorted(
        item.definition.onnx_name for item in operators("plugins").values()
    )


# ---- attributes


def test_attributes_that_are_not_given_are_their_defaults(tmp_path: Path) -> None:
    compare("attributes", [floats(3)], tmp_path, needed=0.1)


OTHERS = {
    "needed": -2.5,
    "ratio": 1e-20,
    "count": -7,
    "flag": False,
    "text": "",
    "mode": "general",
    "level": 2,
    "ratios": [0.1, -0.2, 3e10],
    "counts": [2147483647, -2147483648, 0],
    "maybe_ratio": 0.3,
    "maybe_count": 0,
    "maybe_flag": False,
    "maybe_text": "Grüße, 世界",
    "maybe_ratios": [],
    "maybe_counts": [1],
}


def test_every_attribute_arrives_and_is_kept(tmp_path: Path) -> None:
    answer = compare("attributes", [floats(2)], tmp_path, **OTHERS)
    kept = set(answer.facts["serialised"]) - {"oneop_fingerprint", "oneop_present", "oneop_inputs", "oneop_tensors"}
    assert kept == set(OTHERS) - {"maybe_ratios"}  # an empty list is said by oneop_present


def test_the_smallest_number_arrives_too(tmp_path: Path) -> None:
    answer = compare("attributes", [np.zeros(1, np.float32)], tmp_path, needed=1e-45, ratios=[-1e-40])
    assert answer.outputs[0][0, 0] == np.float32(1e-45) > 0
    assert answer.outputs[0][0, 8] == np.float32(-1e-40) < 0


def test_paths_may_have_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "a  folder"
    folder.mkdir()
    path = Path(shutil.copy(library("plugins"), folder / "my library.so"))
    x = floats(3)
    answer = run(path, node_of(operators("plugins")["scratching"], [x], {}), [x], folder)
    assert answer.error == "", answer.log
    np.testing.assert_array_equal(answer.outputs[0], x + 2)


@pytest.mark.parametrize("name", ["ratios", "counts"])
def test_empty_lists_stay_empty(tmp_path: Path, name: str) -> None:
    compare("attributes", [floats(2)], tmp_path, needed=1.0, **{name: []})


@pytest.mark.parametrize("name", ["maybe_flag", "maybe_ratios", "maybe_counts", "maybe_text"])
def test_an_optional_attribute_is_none_or_its_value(tmp_path: Path, name: str) -> None:
    values = {"maybe_flag": True, "maybe_ratios": [0.5], "maybe_counts": [], "maybe_text": ""}
    compare("attributes", [floats(2)], tmp_path, needed=1.0, **{name: values[name]})


def test_values_are_in_the_metadata(tmp_path: Path) -> None:
    answer = compare("windows", [floats(7, 2)], tmp_path, kernel=2, stride=3)
    assert answer.facts["metadata"] == f"{operators('plugins')['windows'].definition.fingerprint} kernel=2 stride=3"


def test_a_missing_attribute_is_named(tmp_path: Path) -> None:
    operator = operators("plugins")["attributes"]
    node = node_of(operator, [floats(2)], {"needed": 1.0}).without("needed")
    answer = run(library("plugins"), node, [floats(2)], tmp_path, layer="node_1")
    assert answer.error == "Could not create the plugin."
    assert answer.log == [
        "error: trtt::attributes: attribute `needed` is missing, and the definition gives it no default. Write it on"
        " the node, as float. (layer `node_1`)"
    ]


def test_an_attribute_of_another_kind_is_named(tmp_path: Path) -> None:
    operator = operators("plugins")["attributes"]
    node = node_of(operator, [floats(2)], {"needed": 1.0})
    for item in node.attributes:
        if item.name == "count":
            item.CopyFrom(type(item)(name="count", type=item.STRING, s=b"three"))
    answer = run(library("plugins"), node, [floats(2)], tmp_path)
    assert answer.log == [
        "error: trtt::attributes: attribute `count` is given as kCHAR with 6 entries; the definition says int. Write"
        " it as that."
    ]


def test_a_value_that_is_no_choice_is_refused(tmp_path: Path) -> None:
    answer = failure("attributes", [floats(2)], tmp_path, needed=1.0, mode="sum")
    assert answer.log == [
        "error: trtt::attributes: attribute `mode` is 'sum', not one of 'dot', 'general'. Pass one of these."
    ]


# ---- inputs


@pytest.mark.parametrize("keep_absent", [True, False])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("factor", [True, False])
def test_optional_inputs(tmp_path: Path, shift: bool, factor: bool, keep_absent: bool) -> None:
    inputs = [floats(2, 3), floats(3) if shift else None, floats(3) if factor else None]
    compare("affine", inputs, tmp_path, {"keep_absent": keep_absent, "dynamic": True}, alpha=2.5)


@pytest.mark.parametrize("keep_absent", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shift", [True, False])
def test_variadic_inputs(tmp_path: Path, count: int, shift: bool, keep_absent: bool) -> None:
    inputs = [floats(2) if shift else None, [floats(3, 2) for _ in range(count)]]
    compare("totals", inputs, tmp_path, {"keep_absent": keep_absent})


def test_without_counts_inputs_are_absent_at_the_end(tmp_path: Path) -> None:
    operator = operators("plugins")["affine"]
    inputs = [floats(2, 3), floats(3)]
    node = node_of(operator, [*inputs, None], {"alpha": 1.0}).without("oneop_inputs")
    answer = run(library("plugins"), node, inputs, tmp_path)
    np.testing.assert_allclose(answer.outputs[0], inputs[0] + inputs[1], rtol=1e-6)


def test_an_input_that_is_not_optional_is_missed(tmp_path: Path) -> None:
    node = node_of(operators("plugins")["take"], [floats(3)], {}).without("oneop_inputs")
    answer = run(library("plugins"), node, [floats(3)], tmp_path)
    assert answer.error == "getOutputDataTypes failed"
    assert answer.log == ["error: trtt::take: input `index` is absent, and it is not optional. Connect it."]


def test_inputs_that_the_model_announced_are_missed(tmp_path: Path) -> None:
    inputs = [floats(2, 3), floats(3), floats(3)]
    node = node_of(operators("plugins")["affine"], inputs, {"alpha": 1.0})
    answer = run(library("plugins"), node, inputs[:2], tmp_path)
    assert answer.log == [
        "error: trtt::affine: TensorRT hands over 2 inputs; the model says that there are 3. Export the model again."
    ]


# ---- shapes


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (1, 2, 1, 3)])
def test_leading_groups_of_any_rank(tmp_path: Path, shape: tuple[int, ...], dynamic: bool) -> None:
    compare("row_sums", [floats(*shape, 4), None], tmp_path, {"dynamic": dynamic})
    compare("row_sums", [floats(*shape, 4), floats()], tmp_path, {"dynamic": dynamic})


def test_more_dimensions_than_tensorrt_takes_are_not_asked_for(tmp_path: Path) -> None:
    compare("row_sums", [floats(1, 2, 1, 1, 2, 1, 1, 2), None], tmp_path)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 2), (8, 3), (9, 4), (5, 7), (30, 2)])
def test_expressions_round_as_python_does(tmp_path: Path, n: int, m: int, dynamic: bool) -> None:
    compare("sizes", [floats(n, m)], tmp_path, {"dynamic": dynamic}, extra=-1)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("h", "kernel", "stride"), [(7, 3, 1), (7, 3, 2), (3, 3, 5)])
def test_int_attributes_in_sizes(tmp_path: Path, h: int, kernel: int, stride: int, dynamic: bool) -> None:
    compare("windows", [floats(h, 2)], tmp_path, {"dynamic": dynamic}, kernel=kernel, stride=stride)


def test_sizes_that_do_not_fit_are_refused_while_building(tmp_path: Path) -> None:
    answer = failure("affine", [floats(2, 3), floats(4), None], tmp_path)
    assert answer.error == "getOutputShapes failed"
    assert answer.log == [
        'error: trtt::affine: input `shift` has shape (4,); its definition is "k", and k is 3 here, from `x`. Pass a'
        " tensor that fits."
    ]


def test_sizes_that_do_not_fit_are_refused_when_they_are_known(tmp_path: Path) -> None:
    answer = failure("affine", [floats(2, 3), floats(4), None], tmp_path, {"dynamic": True})
    assert answer.error == "onShapeChange failed"
    assert 'input `shift` has shape (4,); its definition is "k"' in answer.log[0]


def test_a_division_by_zero_is_refused(tmp_path: Path) -> None:
    answer = failure("windows", [floats(7, 2)], tmp_path, stride=0)
    assert answer.log == [
        "error: trtt::windows: `(h-kernel)//stride` divides by zero, with h = 7, kernel = 3, stride = 0. Pass other"
        " attributes or inputs."
    ]


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    answer = failure("windows", [floats(2, 2)], tmp_path, kernel=5)
    assert answer.log == [
        "error: trtt::windows: output `out` would have size -2 in dimension 0 ((h-kernel)//stride+1), with h = 2,"
        " kernel = 5, stride = 1. Pass inputs and attributes that give a size of 0 or more."
    ]


# ---- sizes that only the kernel knows


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("values", [[1, -2, 3, 0, 5], [1, 2], [-1, 0], []])
def test_data_dependent_sizes(tmp_path: Path, values: list[float], dynamic: bool) -> None:
    answer = compare("positive", [np.array(values, np.float32)], tmp_path, {"dynamic": dynamic})
    assert answer.facts["size_tensors"] == [3, 4]
    assert answer.facts["shapes"] == [[len(values)], [len(values)], [2, len(values)], [], []]


# ---- dtypes and formats


def types_of(answer: Answer) -> list[list[str]]:
    names = {number: name for name, number in NUMBERS.items()}
    return [[names[number] for number in accepted] for accepted in answer.facts["formats"]]


def test_formats_are_those_that_have_kernels(tmp_path: Path) -> None:
    index = np.array([2, 0], np.int64)
    answer = compare("take", [floats(3), index], tmp_path)
    assert types_of(answer) == [
        [
            "float32",
            "float16",
        ],
        ["int32", "int64"],
        ["float32"],
    ]
    answer = compare("take", [floats(3, dtype="float16"), index.astype(np.int32)], tmp_path)
    assert types_of(answer) == [["float32", "float16"], ["int32", "int64"], ["float16"]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(tmp_path: Path, dtype: str) -> None:
    answer = compare("doubled", [floats(5, dtype=dtype)], tmp_path)
    assert types_of(answer) == [["float16", "bfloat16"], [dtype]]


def test_int8_and_size_tensors(tmp_path: Path) -> None:
    assert types_of(compare("quantised", [np.array([5], np.int8)], tmp_path)) == [["int8"], ["int8"]]
    answer = compare("positive", [floats(3)], tmp_path)
    assert types_of(answer) == [["float32"], ["float32"], ["int64"], ["float32"], ["int32"], ["int32"]]


def test_a_dtype_without_a_kernel_is_not_supported(tmp_path: Path) -> None:
    answer = failure("doubled", [floats(5)], tmp_path)
    assert answer.error == "the plugin does not support the layer's types: tensor 0"


# ---- memory


@pytest.mark.parametrize("unused", [0, 1, 2])
@pytest.mark.parametrize("name", ["positive", "totals"])
def test_an_output_that_nobody_uses_may_have_no_memory(tmp_path: Path, name: str, unused: int) -> None:
    inputs: list[Any] = [floats(5)] if name == "positive" else [None, [floats(3, 2)]]
    operator = operators("plugins")[name]
    answer = run(library("plugins"), node_of(operator, inputs, {}), inputs, tmp_path, unused=unused)
    assert answer.error == "", answer.log
    wanted = operator.reference(*map(to_torch, inputs))
    for number, (found, value) in enumerate(zip(answer.outputs, wanted, strict=True)):
        if number != unused:
            np.testing.assert_allclose(found, value.numpy(), rtol=1e-6)


@pytest.mark.parametrize("allocator", [True, False])
@pytest.mark.parametrize(("size", "allocations"), [(1000, 0), (200_000, 4), (100_000, 0), (300_000, 8)])
def test_scratch_memory_comes_from_the_workspace_first(
    tmp_path: Path, size: int, allocations: int, allocator: bool
) -> None:
    """The workspace has 1 MiB; a run takes two blocks; the host counts the allocations of four runs."""
    answer = compare("scratching", [floats(3)], tmp_path, {"allocator": allocator}, blocks=2, size=size)
    assert answer.facts["workspace"] == 1 << 20
    assert answer.facts["allocations"] == (allocations if allocator else 0)


@pytest.mark.parametrize(("blocks", "allocations"), [(4096, 0), (4097, 4)])
def test_a_block_takes_its_rounded_size_of_the_workspace(tmp_path: Path, blocks: int, allocations: int) -> None:
    """4 bytes each take 256: 4096 blocks are the whole of 1 MiB, and one more comes from the allocator."""
    answer = compare("scratching", [floats(3)], tmp_path, blocks=blocks, size=1)
    assert answer.facts["allocations"] == allocations


# ---- failures


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (1, "the kernel says no"),
        (2, "the kernel threw an exception: thrown by the kernel"),
        (3, "the kernel threw an exception that is no std::exception."),
        (4, "the kernel gave output `out` no size. Call ctx.resize (in C: oneop_resize) on it before the end."),
        (5, "out of memory (scratch): 9223372036854775808 bytes"),
        (
            6,
            "the kernel gave `?m` the size 6; the engine has memory for 3. Build the library with a larger bound:"
            ' bounds={"trtt::failing": {"m": "..."}}.',
        ),
        (
            7,
            "the kernel resized output `out` to (2,), and to (3,) before. Resize an output once.",
        ),
    ],
)
def test_a_kernel_that_fails_is_reported(tmp_path: Path, how: int, message: str) -> None:
    answer = failure("failing", [floats(3)], tmp_path, {"layer": "node_7"}, how=how)
    assert answer.error == "enqueue failed"
    assert answer.log == [f"error: trtt::failing: {message} (layer `node_7`)"]


# ---- engines and models of another definition


def test_an_engine_of_another_definition_is_refused(tmp_path: Path) -> None:
    mine = operators("plugins")["affine"].definition.fingerprint
    answer = failure("affine", [floats(2, 3), None, None], tmp_path, {"fingerprint": "0123456789abcdef"})
    assert answer.error == "Could not deserialize the plugin."
    assert answer.log == [
        "error: trtt::affine: this engine was made from another definition (fingerprint 0123456789abcdef) than this"
        f" library (fingerprint {mine}). Build the engine again, or load the library of that definition."
    ]


def test_a_model_of_another_definition_is_refused(tmp_path: Path) -> None:
    operator = operators("plugins")["affine"]
    node = node_of(operator, [floats(2, 3), None, None], {"alpha": 1.0})
    for item in node.attributes:
        if item.name == "oneop_fingerprint":
            item.s = b"0123456789abcdef"
    answer = run(library("plugins"), node, [floats(2, 3)], tmp_path)
    assert answer.error == "Could not create the plugin."
    assert answer.log == [
        "error: trtt::affine: this model was made from another definition (fingerprint 0123456789abcdef) than this"
        f" library (fingerprint {operator.definition.fingerprint}). Export the model again, or load the library of"
        " that definition."
    ]


def test_another_version_of_the_plugin_is_not_found(tmp_path: Path) -> None:
    node = node_of(operators("plugins")["affine"], [floats(2, 3), None, None], {"alpha": 1.0})
    for item in node.attributes:
        if item.name == "plugin_version":
            item.s = b"2"
    answer = run(library("plugins"), node, [floats(2, 3)], tmp_path)
    assert answer.error == "Plugin not found, are the plugin name, version, and namespace correct?"


@pytest.mark.parametrize("how", ["drop", "rename"])
@pytest.mark.parametrize("name", sorted(set(OTHERS) - {"maybe_ratios"}))
def test_an_attribute_that_the_engine_lost_is_named(tmp_path: Path, name: str, how: str) -> None:
    answer = failure("attributes", [floats(2)], tmp_path, {how: name}, **OTHERS)
    assert answer.error == "Could not deserialize the plugin."
    assert answer.log == [f"error: trtt::attributes: the engine lost attribute `{name}`. Build the engine again."]


@pytest.mark.parametrize("name", ["oneop_present", "oneop_tensors"])
def test_an_engine_that_lost_more_is_refused(tmp_path: Path, name: str) -> None:
    answer = failure("affine", [floats(2, 3), None, None], tmp_path, {"drop": name})
    assert answer.log == ["error: trtt::affine: the engine's fields are damaged. Build the engine again."]
