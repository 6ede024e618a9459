"""The runtime computes what the reference does, for every layout and dtype, and refuses what does not fit."""

import re
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch import runtime_operators as ops
from torch import Tensor
from torch.testing import assert_close

import oneop

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def layouts(shape: list[int]) -> st.SearchStrategy[Tensor]:
    """Tensors of one shape whose memory is laid out in many ways."""

    def make(kind: str) -> Tensor:
        size = len(shape)
        match kind:
            case "expanded":
                return torch.randn([1] * size).expand(shape)
            case "transposed":
                return torch.randn(shape[::-1]).permute(*range(size - 1, -1, -1))
            case "sliced":
                return torch.randn([2 * n for n in shape])[tuple(slice(1, None, 2) for _ in shape)]
            case "offset":
                return torch.randn([n + 1 for n in shape])[tuple(slice(1, None) for _ in shape)]
        return torch.randn(shape)

    return st.sampled_from(["plain", "expanded", "transposed", "sliced", "offset"]).map(make)


@settings(deadline=None)  # the first example builds
@given(st.data(), SHAPES)
def test_every_layout_of_the_inputs_gives_the_same_numbers(data: st.DataObject, shape: list[int]) -> None:
    x, w = data.draw(layouts(shape)), data.draw(layouts(shape))
    assert_close(ops.muladd(x, w, alpha=2.0), 2.0 * x * w)


@settings(deadline=None)  # the first example builds
@given(st.data(), SHAPES, st.integers(0, 3), st.integers(0, 3))
def test_strided_inputs_arrive_as_they_are(data: st.DataObject, batch: list[int], n: int, m: int) -> None:
    x = data.draw(layouts([*batch, n, m]))
    assert_close(ops.transpose(x), x.transpose(-1, -2).contiguous())


def test_strides_of_dimensions_of_size_one_do_not_matter() -> None:
    x = torch.randn(3, 2, 2).as_strided((3, 1, 2, 2), (4, 77, 1, 2))
    assert_close(ops.transpose(x), x.transpose(-1, -2).contiguous())


def test_a_tensor_without_elements_and_one_without_dimensions() -> None:
    assert ops.muladd(torch.empty(0), torch.empty(0)).shape == (0,)
    assert ops.exponential(torch.empty(2, 0, 3)).shape == (2, 0, 3)
    assert_close(ops.exponential(torch.tensor(1.0)), torch.tensor(1.0).exp())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dtypes_with_and_without_a_kernel(dtype: torch.dtype) -> None:
    x, w = torch.randn(5).to(dtype), torch.randn(5).to(dtype)
    assert_close(ops.muladd(x, w, alpha=2.0), 2.0 * x * w)


def test_the_kernel_is_chosen_by_every_dtype_variable() -> None:
    x = torch.randn(4, 3)
    for dtype in (torch.int32, torch.int64, torch.int8):
        assert_close(ops.gather(x, torch.tensor([2, 0], dtype=dtype)), x[[2, 0]])


def test_outputs_never_alias_inputs() -> None:
    for dtype in (torch.float32, torch.float64):  # kernel, reference
        x = torch.randn(3, dtype=dtype)
        y = ops.tail(x)
        assert_close(y, x)
        y.zero_()
        assert x.abs().sum() > 0


def test_optional_variadic_and_several() -> None:
    x, y = torch.randn(3), torch.randn(3)
    assert_close(ops.product(x, y), x * y)
    assert_close(ops.product(x, y, None), x * y)
    assert_close(ops.product(x, y, x), x * y * x)
    assert_close(ops.total([x, y, y], scale=2.0), 2 * (x + 2 * y))
    found = ops.largest(torch.tensor([1.0, 5.0, 2.0]))
    assert isinstance(found, ops.Largest)
    assert (found.value.item(), found.index.item()) == (5.0, 1)


def test_sizes_that_the_kernel_finds() -> None:
    values, places = ops.find(torch.tensor([0.0, 3.0, 0.0, 4.0]))
    assert (places.tolist(), values.tolist()) == ([1, 3], [3.0, 4.0])
    assert ops.find(torch.zeros(3)).places.shape == (0,)


def test_attributes_of_every_kind() -> None:
    x = torch.zeros(1)
    assert ops.shown(ops.show(x, real=1.5)) == "1.5;-3;true;a b;dot;[0.5 2.];[1. 2.];'x''';none;w;none"
    every = ops.show(
        x,
        real=2,
        whole=2**40,
        flag=False,
        word="\N{GREEK SMALL LETTER ALPHA}",
        choice="general",
        reals=[],
        wholes=(7,),
        words=["one", "two words"],
        maybe_real=0.25,
        maybe_word=None,
        maybe_wholes=[],
    )
    assert ops.shown(every) == "2.;1099511627776;false;\u03b1;general;[];[7.];'one''two words';0.25;none;[]"


def test_parallel_work_uses_torchs_threads() -> None:
    x = torch.randn(257, 31)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            assert_close(ops.rows(x), x.sum(1))
            assert_close(ops.rows(x, grain=100), x.sum(1))
    finally:
        torch.set_num_threads(threads)


def test_pieces_of_parallel_work() -> None:
    """Where each piece began: one a thread, unless the pieces would be smaller than asked for."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert ops.pieces(torch.ones(10)).tolist() == [0] * 5 + [5] * 5
        assert ops.pieces(torch.ones(10), grain=8).tolist() == [0] * 5 + [5] * 5
        assert ops.pieces(torch.ones(10), grain=10).tolist() == [0] * 10
        torch.set_num_threads(1)
        assert ops.pieces(torch.ones(10)).tolist() == [0] * 10
    finally:
        torch.set_num_threads(threads)


def refused(call: object, text: str) -> None:
    assert callable(call)
    with pytest.raises(oneop.CallError, match=re.escape(text)):
        call()


X, W = torch.ones(3), torch.ones(3)
SPARSE = torch.eye(2).to_sparse()
QUANTIZED = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
REFUSED = {
    "mixed dtypes": (
        lambda call: call.muladd(X, W.double()),
        "runtime::muladd: input `w` is float64, and Float is float32 here, from `x`. "
        "Convert one of them with `.to(...)`.",
    ),
    "dtype": (
        lambda call: call.muladd(X.int(), W.int()),
        "runtime::muladd: input `x` is int32; its definition is Float: float32, float64, float16, bfloat16. "
        "Convert it with `.to(...)`.",
    ),
    "complex": (
        lambda call: call.muladd(X.to(torch.complex64), W),
        "runtime::muladd: input `x` is complex64; its definition is Float:",
    ),
    "device": (
        lambda call: call.muladd(X, W.to("meta")),
        "runtime::muladd: input `w` is on meta, and `x` is on cpu. Move one of them with `.to(...)`.",
    ),
    "size": (
        lambda call: call.muladd(X, torch.ones(4)),
        'runtime::muladd: input `w` has shape (4,); its definition is "*batch n", and n is 3 here, from `x`. '
        "Pass a tensor that fits.",
    ),
    "rank": (lambda call: call.product(X, torch.ones(3, 1)), "runtime::product: input `y` has shape (3, 1)"),
    "many dimensions": (
        lambda call: call.exponential(torch.ones([1] * 40)),
        "runtime::exponential: input `x` has 40 dimensions; kernels take up to 32. Reshape it to fewer.",
    ),
    "sparse": (
        lambda call: call.muladd(SPARSE, SPARSE),
        "runtime::muladd: input `x` has layout Sparse; kernels take dense tensors. Pass its to_dense().",
    ),
    "quantized": (
        lambda call: call.product(QUANTIZED, QUANTIZED),
        "runtime::product: input `x` is quantized; kernels take plain tensors. Pass its dequantize().",
    ),
    "empty list": (
        lambda call: call.total([]),
        "runtime::total: input `xs` is an empty list. Pass at least one tensor.",
    ),
    "element of a list": (
        lambda call: call.total([X, W.double()]),
        "runtime::total: input `xs[1]` is float64, and Float is float32 here, from `xs[0]`.",
    ),
    "kernel that fails": (lambda call: call.trouble(X, mode="fail"), "runtime::trouble: n is 3"),
    "kernel that throws": (
        lambda call: call.trouble(X, mode="throw"),
        "runtime::trouble: the kernel threw an exception: thrown",
    ),
    "piece that fails": (lambda call: call.trouble(X, mode="parallel"), "runtime::trouble: piece "),
    "no size": (
        lambda call: call.find(X, mode="forget"),
        "runtime::find: the kernel gave output `values` no size. Call ctx.resize (in C: oneop_resize) on it before the "
        "end.",
    ),
    "sizes that differ": (
        lambda call: call.find(X, mode="differ"),
        "runtime::find: the kernel gave `?count` the sizes 4 and 3. Give it one.",
    ),
    "negative size": (
        lambda call: call.find(X, mode="negative"),
        "runtime::find: the kernel resizes output `values` to -1 in dimension 0",
    ),
    "two sizes": (
        lambda call: call.find(X, mode="twice"),
        "runtime::find: the kernel resized output `values` to (4,) and then to (3,). Resize an output once.",
    ),
    "message that is no text": (lambda call: call.trouble(X, mode="bytes"), "runtime::trouble: a \ufffd byte"),
    "empty message": (
        lambda call: call.trouble(X, mode="empty"),
        "runtime::trouble: the kernel failed with an empty message",
    ),
    "no kernel and no reference": (lambda call: call.native(X.double()), "runtime::native: there is no kernel for "),
}


# Of an empty list torch.ops says that it holds no tensor, before any of our code runs.
@pytest.mark.parametrize(
    ("way", "case"),
    [(way, case) for way in ("operator", "torch.ops") for case in REFUSED if way[0] + case != "tempty list"],
)
def test_what_does_not_fit_is_refused(case: str, way: str) -> None:
    for operator in (ops.muladd, ops.product, ops.exponential, ops.total, ops.trouble, ops.find, ops.native):
        _attach(operator)
    call, text = REFUSED[case]
    refused(lambda: call(ops if way == "operator" else torch.ops.runtime), text)


def _attach(operator: oneop.Operator) -> None:
    from oneop.targets.pytorch import native

    native.prepare(operator)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_long_message_is_cut_between_characters(length: int) -> None:
    with pytest.raises(oneop.CallError) as caught:
        ops.trouble(torch.ones(length), mode="long")
    head, _, text = str(caught.value).partition(": ")
    assert head == "runtime::trouble"
    assert text.lstrip("x") == "日" * len(text.lstrip("x"))
    assert len(str(caught.value).encode()) > 1020


def test_an_output_without_memory_says_how_much_it_wanted() -> None:
    said = "runtime::find: output `values` of shape (1125899906842624,) (4503599627370496 bytes) cannot be allocated: "
    with pytest.raises(oneop.CallError) as caught:
        ops.find(X, mode="huge")
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith(". Pass smaller inputs.")
    assert "\n" not in str(caught.value)  # torch would add its C++ stack
    refused(lambda: ops.find(X, mode="beyond"), "(more bytes than 64 bits count) cannot be allocated: ")


def test_an_output_may_be_resized_again_to_the_same_sizes() -> None:
    values, places = ops.find(X, mode="again")
    assert_close(values, X)
    assert places.tolist() == [0, 1, 2]


def test_a_failed_call_leaves_nothing_behind() -> None:
    for _ in range(3):
        refused(lambda: ops.trouble(X, mode="parallel"), "piece")
        assert_close(ops.trouble(X), X)


def test_views_with_lazy_bits_are_resolved() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    negative = z.conj().imag
    assert negative.is_neg()
    assert_close(ops.muladd(negative, negative), (negative * negative).clone())


def test_many_threads_at_once() -> None:
    x = torch.randn(64, 8)
    wrong: list[object] = []

    def work(seed: int) -> None:
        mine = x + seed
        leaf = mine.clone().requires_grad_()
        for _ in range(50):
            if not torch.equal(ops.muladd(mine, mine), mine * mine):
                wrong.append(seed)
            (gradient,) = torch.autograd.grad(ops.muladd(leaf, leaf).sum(), leaf)
            if not torch.allclose(gradient, 2 * leaf):
                wrong.append(seed)
            try:
                ops.trouble(X, mode="fail")
                wrong.append("no error")
            except oneop.CallError:
                pass

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
