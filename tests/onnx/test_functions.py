"""The fallback function gives what PyTorch gives, whatever the calls of an operator in one model look like."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from jaxtyping import Float, Int, Int64, Shaped
from torch import Tensor

import oneop
from support.onnx_checks import eager, export_and_compare, export_quietly, run_reference


@oneop.op("onnx_functions::scaled_linear")
def scaled_linear(
    x: Float[Tensor, "*batch k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "*batch m"]:
    y = alpha * (x @ weight.T)
    return y if bias is None else y + beta * bias


BOTH = ("inline", "function")


class Linear(torch.nn.Module):
    """Three calls with different attributes; the middle one has no bias where ``mixed`` says so."""

    def __init__(self, dtype: torch.dtype, mixed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 4, dtype=dtype) / 2)
        self.bias = torch.nn.Parameter(torch.randn(4, dtype=dtype))
        self.mixed = mixed

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(scaled_linear(x, self.weight, self.bias, alpha=2.0, beta=0.5))
        y = scaled_linear(y, self.weight, None if self.mixed else self.bias, alpha=-0.25)
        return scaled_linear(y, self.weight, self.bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_float_attributes_stay_symbolic_in_one_body(tmp_path: Path, dtype: torch.dtype) -> None:
    examples = [(torch.randn(rows, 4, dtype=dtype),) for rows in (2, 7, 1)]
    exported = export_and_compare(Linear(dtype, mixed=False), examples, tmp_path, dynamic_shapes=({0: "rows"},))
    (function,) = exported.proto.functions
    assert "If" not in {node.op_type for node in function.node}
    symbolic = [
        attribute.ref_attr_name for node in function.node for attribute in node.attribute if attribute.ref_attr_name
    ]
    assert sorted(symbolic) == ["alpha", "beta"]
    assert list(function.input) == ["x", "weight", "bias"]
    assert list(function.output) == ["out"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_optional_input_may_be_there_and_absent_in_one_model(tmp_path: Path, dtype: torch.dtype) -> None:
    examples = [(torch.randn(rows, 4, dtype=dtype),) for rows in (2, 7)]
    exported = export_and_compare(
        Linear(dtype, mixed=True), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: "rows"},)
    )
    assert [len(node.input) for node in exported.nodes(scaled_linear)] == [3, 3, 3]
    assert [node.input[2] for node in exported.nodes(scaled_linear)] == ["bias", "", "bias"]
    assert [function.overload for function in exported.proto.functions] == [""]


def test_float_attributes_of_a_float64_model_have_32_bits(tmp_path: Path) -> None:
    class Tenth(torch.nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return scaled_linear(x, weight, alpha=0.1)

    example = (torch.randn(2, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64))
    exported = export_and_compare(Tenth(), [example], tmp_path, tolerance=1e-7)
    (wanted,), (found,) = eager(Tenth(), example), run_reference(exported.proto, example)
    as_32_bits = wanted * (float(torch.tensor(0.1, dtype=torch.float32)) / 0.1)
    assert abs(found - as_32_bits).max() < 1e-15
    assert abs(found - wanted).max() > 1e-11


class Ranks(torch.nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        rows = normalize(x.reshape(-1, x.shape[-1]), eps=0.5)
        return normalize(x, eps=0.25) + rows.reshape(x.shape) + normalize(weight, eps=1.0).sum()


@oneop.op("onnx_functions::normalize")
def normalize(x: Float[Tensor, "*batch k"], *, eps: float = 1e-5) -> Float[Tensor, "*batch k"]:
    """Depends on the rank: sums over all leading dimensions, one by one."""
    total = x
    for _ in range(x.ndim - 1):
        total = total.sum(0)
    return x / (total.abs() + eps) + x.ndim


def test_a_rank_that_differs_from_call_to_call(tmp_path: Path) -> None:
    examples = [(torch.randn(2, 3, 4), torch.randn(5)), (torch.randn(6, 2, 4), torch.randn(5))]
    exported = export_and_compare(Ranks(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: "a", 1: "b"}, None))
    assert len(exported.nodes(normalize)) == 3
    assert len(exported.proto.functions) == 1


@oneop.op("onnx_functions::pool")
def pool(
    x: Float[Tensor, "n (h-k)//stride+1+k-1-(h-k)//stride+h-k"],
    window: Float[Tensor, "k"],
    height: Float[Tensor, "h"],
    *,
    stride: int = 1,
    mode: str = "sum",
    taps: list[int] = [1],  # noqa: B006
) -> Float[Tensor, "n (h-k)//stride+1"]:
    """A moving window. The int attribute is part of shapes; mode and taps decide which nodes there are."""
    y = x.unfold(1, window.shape[0], stride) * window
    y = y.sum(-1) if mode == "sum" else y.amax(-1)
    for tap in taps:
        y = y * tap
    return y + height.sum()


class Pools(torch.nn.Module):
    def forward(self, x: Tensor, window: Tensor, height: Tensor) -> tuple[Tensor, ...]:
        return (
            pool(x, window, height),
            pool(x, window, height, stride=2),
            pool(x, window, height, mode="max", taps=[2, 3]),
            pool(x, window, height, mode="max", taps=[3, 3]),
            pool(x, window, height, mode="max", taps=[]),
        )


def test_attributes_that_are_baked_select_a_body(tmp_path: Path) -> None:
    examples = [(torch.randn(2, 8), torch.randn(3), torch.randn(8))]
    exported = export_and_compare(Pools(), examples, tmp_path, fallbacks=BOTH)
    assert len(exported.nodes(pool)) == 5
    assert len(exported.proto.functions) == 1


@oneop.op("onnx_functions::by_sign")
def by_sign(x: Float[Tensor, "n"], *, alpha: float, gamma: float = 1.0) -> Float[Tensor, "n"]:
    """Branches on one float attribute and takes the exponential of another: neither can be a tensor."""
    return gamma * (x + math.exp(alpha)) if alpha > 0 else gamma * (x - math.exp(alpha))


class BySign(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return by_sign(x, alpha=0.5) * by_sign(x, alpha=-0.5, gamma=2.0) + by_sign(x, alpha=0.5, gamma=3.0)


def test_a_float_attribute_that_decides_is_baked_and_the_others_are_not(tmp_path: Path) -> None:
    exported = export_and_compare(BySign(), [(torch.randn(4),)], tmp_path)
    (function,) = exported.proto.functions
    assert [node.op_type for node in function.node].count("If") == 1
    text = onnx.printer.to_text(function)
    assert "@alpha" in text
    assert "@gamma" in text


@oneop.op("onnx_functions::half_life")
def half_life(x: Float[Tensor, "n"], *, rate: float = 1.0) -> Float[Tensor, "n"]:
    """A float attribute in Python's arithmetic, where a tensor would round differently."""
    return x * (1.0 if round(rate) == rate else rate)


def test_a_symbolic_attribute_that_would_be_wrong_elsewhere_is_baked(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return half_life(x, rate=3.0) + half_life(x, rate=2.5)

    export_and_compare(Two(), [(torch.randn(4),)], tmp_path)


class Stats(NamedTuple):
    low: Float[Tensor, "k"]
    high: Float[Tensor, "k"]
    where: Int64[Tensor, "k"]


@oneop.op("onnx_functions::column_stats")
def column_stats(x: Float[Tensor, "n k"], *, shift: float = 0.0) -> Stats:
    return Stats(x.min(0).values + shift, x.max(0).values, x.argmax(0))


class ColumnStats(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = column_stats(x, shift=0.5)
        return found.low, found.where + column_stats(found.high[None]).where


def test_several_outputs_are_one_node(tmp_path: Path) -> None:
    examples = [(torch.randn(5, 3),), (torch.randn(4, 3),)]
    exported = export_and_compare(ColumnStats(), examples, tmp_path, dynamic_shapes=({0: "n"},))
    assert [len(node.output) for node in exported.nodes(column_stats)] == [3, 3]
    assert list(exported.proto.functions[0].output) == ["low", "high", "where"]


@oneop.op("onnx_functions::positives")
def positives(x: Float[Tensor, "n k"]) -> Float[Tensor, "?found k"]:
    return x[x.sum(1) > 0]


def test_an_output_whose_size_depends_on_the_data(tmp_path: Path) -> None:
    class Positives(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return positives(x) * 2

    torch.manual_seed(3)
    examples = [(torch.randn(5, 3),), (torch.randn(9, 3),), (-torch.ones(2, 3),)]
    export_and_compare(Positives(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: "n"},))


@oneop.op("onnx_functions::weighted_sum")
def weighted_sum(
    weight: Float[Tensor, "n"], offset: Float[Tensor, "n"] | None, terms: list[Float[Tensor, "n"]], *, by: float = 1.0
) -> Float[Tensor, "n"]:
    total = sum(term * (index + 1) for index, term in enumerate(terms)) * weight * by
    return total if offset is None else total + offset


class Sums(torch.nn.Module):
    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total = weighted_sum(x, None, [x, y], by=0.5)
        for count in self.counts:
            total = total + weighted_sum(x, y, [y, x, total][:count])
        return total


def test_variadic_inputs_behind_an_absent_one(tmp_path: Path) -> None:
    examples = [(torch.randn(3), torch.randn(3)), (torch.randn(5), torch.randn(5))]
    exported = export_and_compare(Sums((2,)), examples, tmp_path, dynamic_shapes=({0: "n"}, {0: "n"}))
    assert [node.input[1] for node in exported.nodes(weighted_sum)] == ["", "y"]


def test_variadic_inputs_of_different_number(tmp_path: Path) -> None:
    # onnx's ReferenceEvaluator refuses a node with fewer inputs than its function has, aloud.
    examples = [(torch.randn(3), torch.randn(3))]
    exported = export_and_compare(Sums((1, 3)), examples, tmp_path, fallbacks=BOTH, reference_evaluator=False)
    assert [len(node.input) for node in exported.nodes(weighted_sum)] == [4, 3, 5]
    with pytest.raises(RuntimeError, match="Mismatch lengths"):
        run_reference(exported.proto, examples[0])


@oneop.op("onnx_functions::twice")
def twice(
    x: Float[Tensor, "*batch k"], weight: Float[Tensor, "k k"], *, alpha: float = 2.0
) -> Float[Tensor, "*batch k"]:
    return scaled_linear(scaled_linear(x, weight, alpha=alpha), weight, weight[0], beta=0.5)


def test_a_reference_that_calls_operators(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return twice(x, weight, alpha=0.5) + twice(x, weight, alpha=3.0)

    example = (torch.randn(2, 3), torch.randn(3, 3))
    exported = export_and_compare(Twice(), [example], tmp_path, fallbacks=BOTH)
    assert sorted(function.name for function in exported.proto.functions) == ["ScaledLinear", "Twice"]
    keys = {item.key for item in exported.proto.metadata_props}
    assert {"oneop.fingerprint.onnx_functions::twice", "oneop.fingerprint.onnx_functions::scaled_linear"} <= keys
    inner = [node for node in _all_nodes(exported.proto.functions) if node.op_type == "ScaledLinear"]
    assert inner
    assert all({item.name for item in node.attribute} == {"alpha", "beta"} for node in inner)


def _all_nodes(holders: Any) -> list[onnx.NodeProto]:
    found = []
    for holder in holders:
        for node in holder.node:
            found.append(node)
            found.extend(_all_nodes([attribute.g for attribute in node.attribute if attribute.HasField("g")]))
    return found


@oneop.op("onnx_functions::take_rows")
def take_rows(x: Shaped[Tensor, "n k"], index: Int64[Tensor, "m"]) -> Shaped[Tensor, "m k"]:
    return x[index]


def test_one_body_serves_several_dtypes(tmp_path: Path) -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: Tensor, numbers: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
            return take_rows(x, index), take_rows(numbers, index)

    example = (torch.randn(4, 2), torch.arange(8).reshape(4, 2), torch.tensor([3, 0, 3]))
    export_and_compare(Rows(), [example], tmp_path, fallbacks=BOTH)


@oneop.op("onnx_functions::only_fours")
def only_fours(x: Float[Tensor, "n k"], *, by: float = 1.0) -> Float[Tensor, "n k"]:
    """Written for four columns, as references are whose author needed no more; other numbers give something else."""
    return x * by if x.shape[1] == 4 else x - 1


def test_a_reference_that_depends_on_a_size_is_traced_with_the_sizes_of_the_model(tmp_path: Path) -> None:
    class Fours(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return only_fours(x, by=2.0), only_fours(y)

    examples = [(torch.randn(2, 4), torch.randn(3, 5)), (torch.randn(6, 4), torch.randn(3, 5))]
    export_and_compare(Fours(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: "n"}, None))


@oneop.op("onnx_functions::twin")
def twin(x: Float[Tensor, "n"], y: Float[Tensor, "m"]) -> Float[Tensor, "n"]:
    """Broadcasts where y has one element; with equal sizes in the example a careless trace forgets the other case."""
    return x + (y if y.shape[0] == 1 else y.sum())


def test_sizes_that_are_equal_in_the_example_only(tmp_path: Path) -> None:
    class Twin(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return twin(x, y)

    examples = [(torch.randn(3), torch.randn(3)), (torch.randn(5), torch.randn(2))]
    export_and_compare(Twin(), examples, tmp_path, dynamic_shapes=({0: "n"}, {0: "m"}))


@oneop.op("onnx_functions::lonely")
def lonely(x: Float[Tensor, "n k"], y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """Something else for one row, and for as many rows as y has. torch.export forgets both without a word."""
    if x.shape[0] == 1:
        return x * 10
    return x + y if x.shape[0] == y.shape[0] else x + y.sum(0)


class Lonely(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return lonely(x, y)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_size_that_the_reference_asks_for_is_kept(tmp_path: Path, rows: int) -> None:
    export_and_compare(Lonely(), [(torch.randn(rows, 2), torch.randn(2, 2))], tmp_path)


def test_a_size_that_the_reference_asks_for_cannot_be_free(tmp_path: Path) -> None:
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(
            Lonely().eval(),
            (torch.randn(4, 2), torch.randn(2, 2)),
            tmp_path / "model.onnx",
            dynamic_shapes=({0: "n"}, None),
        )
    assert str(caught.value) == (
        "onnx_functions::lonely: its reference cannot become an ONNX function: some sizes are free in this "
        "model, and it does "
        "not do the same at all (the trace and the reference differ at the sizes (1, 3), (4, 3)). Rewrite the "
        "reference in "
        'operations that torch.onnx.export takes, or export with fallback="none" and run the file with the '
        "operator's native "
        "library."
    )


@oneop.op("onnx_functions::windows")
def windows(
    x: Float[Tensor, "*batch n"], *, size: int = 2, stride: int = 1
) -> Float[Tensor, "*batch (n-size)//stride+1"]:
    """torch.export asks how its example lies in memory, and whether a window fits: guards that no Dim can say."""
    return x.unfold(-1, size, stride).square().sum(-1)


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (3, 3), (3, 2), (4, 5), (1, 1)])
def test_guards_of_layouts_do_not_bind_sizes(tmp_path: Path, size: int, stride: int) -> None:
    class Windows(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return windows(x, size=size, stride=stride)

    lengths = [6, size, size + 1, 2 * size, 12, 13]
    examples = [(torch.randn(rows, length),) for rows, length in zip((2, 3, 1, 2, 4, 2), lengths, strict=True)]
    auto = torch.export.Dim.AUTO
    export_and_compare(Windows(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: auto, 1: auto},))


@oneop.op("onnx_functions::picked")
def picked(x: Float[Tensor, "n m"], index: Int[Tensor, "k"]) -> Float[Tensor, "k m"]:
    y = torch.zeros_like(x)
    y[index, 0] = x[index, 1]
    return x[index] + y[index]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_of_32_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    class Picked(torch.nn.Module):
        def forward(self, x: Tensor, index: Tensor) -> Tensor:
            return picked(x, index)

    free = torch.export.Dim.AUTO
    examples = [(torch.randn(n, 3), torch.arange(n, dtype=dtype).flip(0)) for n in (4, 2, 1)]
    export_and_compare(Picked(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: free}, {0: free}))


@oneop.op("onnx_functions::repeated")
def repeated(x: Float[Tensor, "n k"], *, times: int = 2) -> Float[Tensor, "n k*times"]:
    return x.repeat_interleave(times, dim=1)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_nothing_as_often_as_that(tmp_path: Path, times: int) -> None:
    """ONNX Runtime leaves out an Expand to a constant size of 0."""

    class Repeated(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return repeated(x, times=times)

    free = torch.export.Dim.AUTO
    examples = [(torch.randn(2, 3),), (torch.randn(1, 1),), (torch.randn(3, 1),)]
    export_and_compare(Repeated(), examples, tmp_path, fallbacks=BOTH, dynamic_shapes=({0: free, 1: free},))


def at_one_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] == 20 else x


def beyond_a_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 20 else x


def at_multiples(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 3 == 0 else x


def in_parts(x: Tensor) -> Tensor:
    """torch decides how many parts there are, in code of its own."""
    return torch.cat([part * number for number, part in enumerate(x.split(5))])


def by_layout(x: Tensor) -> Tensor:
    """The author asks what torch asks itself."""
    windows = x.unfold(0, 2, 9)
    return (windows * 2 if windows.is_contiguous() else windows).sum(1)


def in_place(x: Tensor) -> Tensor:
    """Whether reshape gives a view, which is written to, or a copy, which is not, depends on the size."""
    y = x.clone()
    y.unfold(0, 3, 3).reshape(-1).add_(1)
    return y


def pooled(x: Tensor) -> Tensor:
    """torch's exporter takes it apart for the sizes of the example."""
    return torch.nn.functional.adaptive_avg_pool1d(x[None], 3)[0]


def without_elements(x: Tensor) -> Tensor:
    return x.new_full((1,), 7.0) if x.numel() == 0 else x.sum(0, keepdim=True)


BRANCHING = [at_one_size, beyond_a_size, at_multiples, in_parts, by_layout, in_place, pooled, without_elements]


@pytest.mark.parametrize("reference", BRANCHING, ids=lambda given: given.__name__)
def test_guards_that_decide_what_is_computed_bind_sizes(reference: Any, tmp_path: Path) -> None:
    """A file for all sizes would give wrong numbers at some: there is none."""

    def branching(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
        return reference(x)

    op = oneop.op(f"onnx_functions::branching_{reference.__name__}")(branching)

    class Branching(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return op(x)

    free = ({0: torch.export.Dim.AUTO},)
    with pytest.raises(oneop.ExportError, match="some sizes are free in this model, and it does not do the same"):
        export_quietly(Branching(), (torch.randn(12),), tmp_path / "m.onnx", dynamic_shapes=free)
    if reference is in_place:  # what torch.export writes down takes reshape for a copy, and it is a view
        with pytest.raises(oneop.ExportError, match=r"what torch\.export makes of it does not do the same \("):
            export_quietly(Branching(), (torch.randn(20),), tmp_path / "m.onnx")
    else:
        export_and_compare(Branching(), [(torch.randn(20),)], tmp_path)


@oneop.op("onnx_functions::transposed_strides")
def transposed_strides(x: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
    return x.t().as_strided((x.shape[0],), (1,)).clone()


@oneop.op("onnx_functions::nameless")
def nameless(x: Float[Tensor, "_ m"]) -> Float[Tensor, "m"]:
    return x[0] * 2 if x.shape[0] == 1 else x.sum(0)


@pytest.mark.parametrize("op", [transposed_strides, nameless], ids=lambda op: op.definition.base)
def test_what_a_trace_does_not_say(op: oneop.Operator, tmp_path: Path) -> None:
    class Called(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return op(x)

    auto = torch.export.Dim.AUTO
    with pytest.raises(oneop.ExportError, match="some sizes are free in this model, and it does not do the same"):
        export_quietly(Called(), (torch.randn(4, 5),), tmp_path / "m.onnx", dynamic_shapes=({0: auto, 1: auto},))


@oneop.op("onnx_functions::normed")
def normed(x: Float[Tensor, "b c n"]) -> Float[Tensor, "b c n"]:
    return torch.nn.functional.local_response_norm(x, 2)


def test_a_trace_that_fails_without_elements_is_no_wrong_one(tmp_path: Path) -> None:
    """torch gives back an input without elements; the file says at run time that it cannot."""

    class Normed(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return normed(x)

    examples = [(torch.randn(2, 3, 4),), (torch.randn(3, 5, 2),)]
    free = (dict.fromkeys(range(3), torch.export.Dim.AUTO),)
    export_and_compare(Normed(), examples, tmp_path, dynamic_shapes=free)


def test_constant_inputs_do_not_reach_a_branch_that_is_not_taken(tmp_path: Path) -> None:
    # onnxruntime computes what depends on constants alone before the model runs, in branches too: with an absent
    # input it crashed.
    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            absent = scaled_linear(self.weight, self.weight, alpha=0.5)
            there = scaled_linear(self.weight, self.weight, self.weight[0], alpha=0.5)
            return x @ absent + x @ there

    export_and_compare(Constant(), [(torch.randn(2, 4),)], tmp_path)


@oneop.op("onnx_functions::maybe_scale")
def maybe_scale(x: Float[Tensor, "n"], *, by: float | None = None, shift: float = 0.0) -> Float[Tensor, "n"]:
    return x + shift if by is None else x * by + shift


def test_an_attribute_that_may_be_none(tmp_path: Path) -> None:
    class Absent(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return maybe_scale(maybe_scale(x, shift=1.0), shift=2.0)

    class Mixed(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return maybe_scale(maybe_scale(x), by=3.0)

    exported = export_and_compare(Absent(), [(torch.randn(3),)], tmp_path)
    assert [[item.name for item in node.attribute] for node in exported.nodes(maybe_scale)] == [["shift"], ["shift"]]
    # onnx's ReferenceEvaluator knows no default of a function's attribute, and says so.
    exported = export_and_compare(Mixed(), [(torch.randn(3),)], tmp_path, reference_evaluator=False, fallbacks=BOTH)
    with pytest.raises((ValueError, AttributeError)):
        run_reference(exported.proto, (torch.randn(3),))


def test_a_function_says_nothing_of_the_machine_that_wrote_it(tmp_path: Path) -> None:
    class Once(torch.nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return scaled_linear(x, weight)

    protos = []
    for name in ("first", "second"):
        export_quietly(Once().eval(), (torch.randn(2, 3), torch.randn(2, 3)), tmp_path / name)
        protos.append(onnx.load(tmp_path / name))
    first, second = (proto.functions[0].SerializeToString(deterministic=True) for proto in protos)
    assert first == second
    assert b".py" not in first


# What torch's exporter gets wrong


@oneop.op("onnx_functions::between")
def between(x: Float[Tensor, "n"], *, low: float = -1.0, high: float = 1.0) -> Float[Tensor, "n"]:
    return x.clamp(low, high)


@oneop.op("onnx_functions::two_ranges")
def two_ranges(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    zero, one, three, four = (torch.tensor(value) for value in (0.0, 1.0, 3.0, 4.0))
    return x.maximum(zero).minimum(three) - x.maximum(one).minimum(four)


def test_constants_that_the_optimizer_gives_one_name_are_all_kept(tmp_path: Path) -> None:
    """Its rewriting of Max and Min to Clip calls the bounds by the name of what is clipped, however often that is."""

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            own = x.maximum(torch.tensor(2.0)).minimum(torch.tensor(3.0))
            return between(x), between(x, high=0.5), two_ranges(x), own

    x = torch.tensor([-3.0, 0.2, 0.7, 2.5, 5.0])
    export_and_compare(Model(), [(x,)], tmp_path, fallbacks=BOTH)


@oneop.op("onnx_functions::pair")
def pair(x: Float[Tensor, "n"], *, second: float = 1.0) -> Float[Tensor, "2"]:
    return torch.tensor([1.0, second])


class Fixed(NamedTuple):
    constant: Float[Tensor, "2"]
    doubled: Float[Tensor, "n"]


@oneop.op("onnx_functions::fixed")
def fixed(x: Float[Tensor, "n"]) -> Fixed:
    return Fixed(torch.tensor([1.0, 2.0]), 2 * x)


@pytest.mark.parametrize("values", [(2.0,), (2.0, 3.0)])
def test_an_output_that_is_a_constant(tmp_path: Path, values: tuple[float, ...]) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (*(pair(x, second=value) + x for value in values), *fixed(x))

    export_and_compare(Model(), [(torch.ones(2),)], tmp_path, fallbacks=BOTH)


@oneop.op("onnx_functions::moment")
def moment(x: Float[Tensor, "m n"]) -> Float[Tensor, "m"]:
    return (x * torch.arange(x.shape[-1], dtype=x.dtype)).sum(-1)


def test_float16_stays_float16(tmp_path: Path) -> None:
    """torch's translation of a sum goes to float32, and stays there."""

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return moment(x)

    x = torch.rand(2, 3).half()
    export_and_compare(Model(), [(x,)], tmp_path, fallbacks=BOTH, reference_evaluator=False)
