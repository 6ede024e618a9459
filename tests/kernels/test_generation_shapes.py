"""The generated `shapes` in C against binding.py: the same sizes, and the same words where something does not fit."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from kernels.contract_host import host_of
from kernels.contract_operators import DEFINITIONS
from kernels.ctypes_host import UNKNOWN, Host, HostError
from torch import Tensor

from oneop.definition import attributes
from oneop.definition.binding import bind
from oneop.definition.dims import Anything, Binary, Call, Dim, DimError, Expr, Name, Number, Shape, Unknown, evaluate
from oneop.definition.dtypes import BY_NAME, ElementType
from oneop.definition.record import Attribute, Definition, Input, Output
from oneop.definition.signature import definition_of
from oneop.errors import CallError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.generate import Kernel, table_text
from oneop.kernels.inputs import INCLUDE
from oneop.kernels.spec import KernelSpec

FLOAT32 = ElementType("Float32", (BY_NAME["float32"],))
SIZES, ATTRIBUTES = ("n", "k", "h"), ("pad", "stride")
N_OPERATORS = 60


def table_host(definitions: Sequence[Definition]) -> Host:
    """A library of these operators without kernels: their `shapes` are all that is called."""
    from pathlib import Path

    specs = [KernelSpec(item, (Path("/nowhere/kernel.c"),)) for item in definitions]
    stubs = "".join(
        f"int {Kernel(spec).run_name(combination)}(const oneop_call *call) {{ (void)call; return 0; }}\n"
        for spec in specs
        for combination in spec.combinations()
    )
    library = Library(
        title="tables",
        stem="tables",
        units=(Unit("table", "c", table_text(specs) + stubs),),
        include_dirs=(INCLUDE,),
        flags=("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-O1"),
    )
    return Host(build(library), definitions)


def expected(
    definition: Definition, shapes: Mapping[str, Sequence[Sequence[int]]], values: Mapping[str, Any]
) -> dict[str, list[tuple[int, ...]]] | str:
    """What binding.py says: shapes, or a message."""
    try:
        binding = bind(definition, shapes, values)
        found = {item.name: binding.output_shapes(item) for item in definition.outputs}
    except CallError as error:
        return str(error)
    return {
        name: [tuple(UNKNOWN if size is None else size for size in shape) for shape in tensors]
        for name, tensors in found.items()
    }


def computed(
    host: Host, base: str, shapes: Mapping[str, Sequence[Sequence[int]]], values: Mapping[str, Any]
) -> dict[str, list[tuple[int, ...]]] | str:
    try:
        return host.shapes(base, shapes, values)[0]
    except HostError as error:
        return str(error)


# ---- many expressions


def expression(source: random.Random, depth: int) -> Expr:
    if depth == 0 or source.random() < 0.15:
        return source.choice([*map(Name, (*SIZES, *ATTRIBUTES)), Number(source.randrange(10)), Number(2**40)])
    if source.random() < 0.2:
        arguments = tuple(expression(source, depth - 1) for _ in range(source.choice([2, 3])))
        return Call(source.choice(["min", "max"]), arguments)
    operator = source.choice(["+", "-", "*", "//", "%"])
    return Binary(operator, expression(source, depth - 1), expression(source, depth - 1))


def operator_with(number: int, source: random.Random) -> Definition:
    own: list[Dim] = [source.choice([expression(source, 2), Number(3), Anything(), Name("n")]) for _ in range(2)]
    result: list[Dim] = [expression(source, 3), source.choice([Unknown("size"), Name("k"), expression(source, 1)])]
    return Definition(
        name=f"shapes::op{number}",
        inputs=(
            Input("x", "required", FLOAT32, Shape((Name("n"), Name("k")), "batch")),
            Input(
                "z",
                "required",
                FLOAT32,
                Shape(tuple(item for item in own if not isinstance(item, Name) or item.name in SIZES)),
            ),
            Input("y", "variadic", FLOAT32, Shape((Name("h"),), "batch" if number % 2 else None)),
        ),
        attributes=tuple(Attribute(name, attributes.BY_NAME["int"], 1) for name in ATTRIBUTES),
        outputs=(
            Output("first", FLOAT32, Shape(tuple(result), "batch")),
            Output("second", FLOAT32, Shape((expression(source, 2),))),
        ),
        onnx_name=f"Op{number}",
    )


@cache
def many() -> tuple[Definition, ...]:
    source = random.Random(20)
    return tuple(operator_with(number, source) for number in range(N_OPERATORS))


@cache
def many_host() -> Host:
    return table_host(many())


size = st.integers(0, 12) | st.sampled_from([2**31, 2**40, 2**62, 2**63 - 1])
attribute = st.integers(-4, 9) | st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, 2**62, -(2**62)])


@st.composite
def calls(draw: st.DrawFn) -> tuple[Definition, dict[str, list[tuple[int, ...]]], dict[str, int]]:
    definition = many()[draw(st.integers(0, N_OPERATORS - 1))]
    names = {name: draw(size) for name in SIZES}
    values = {name: draw(attribute) for name in ATTRIBUTES}
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    own = []
    for dim in definition.input("z").shape.dims:
        own.append(fitting(dim, names | values) if draw(st.integers(0, 9)) else draw(size))
    lead = batch if definition.input("y").shape.batch else ()
    shapes = {
        "x": [(*batch, names["n"], names["k"])],
        "z": [tuple(own)],
        "y": [(*lead, names["h"])] * draw(st.integers(1, 2)),
    }
    if not draw(st.integers(0, 4)):  # something does not fit
        which = draw(st.sampled_from(sorted(shapes)))
        shapes[which] = [*shapes[which][:-1], tuple(draw(st.lists(size, max_size=4)))]
    return definition, shapes, values


def fitting(dim: Dim, values: Mapping[str, int]) -> int:
    if not isinstance(dim, Binary | Call | Name | Number):
        return 5
    try:
        return max(0, evaluate(dim, values))
    except DimError:
        return 1


@settings(deadline=None, max_examples=1500)
@given(calls())
def test_c_and_python_agree(call: tuple[Definition, dict[str, list[tuple[int, ...]]], dict[str, int]]) -> None:
    definition, shapes, values = call
    assert computed(many_host(), definition.base, shapes, values) == expected(definition, shapes, values)


def random_call(source: random.Random) -> tuple[Definition, dict[str, list[tuple[int, ...]]], dict[str, int]]:
    definition = source.choice(many())
    names = {name: source.choice([0, 1, 2, 3, 7, 2**62]) for name in SIZES}
    values = {name: source.choice([-3, 0, 1, 2, 2**62]) for name in ATTRIBUTES}
    own = tuple(fitting(dim, names | values) for dim in definition.input("z").shape.dims)
    return definition, {"x": [(names["n"], names["k"])], "z": [own], "y": [(names["h"],)]}, values


def test_what_is_unknown_stays_unknown_and_the_rest_is_right() -> None:
    source = random.Random(2)
    tried = 0
    for _ in range(4000):
        definition, shapes, values = random_call(source)
        known = expected(definition, shapes, values)
        if isinstance(known, str):
            continue
        hidden = {
            name: [tuple(source.choice([UNKNOWN, size]) for size in shape) for shape in tensors]
            for name, tensors in shapes.items()
        }
        found = computed(many_host(), definition.base, hidden, values)
        assert not isinstance(found, str), (definition.base, hidden, values)
        for name, tensors in known.items():
            for shape, partial in zip(tensors, found[name], strict=True):
                assert len(shape) == len(partial)
                assert all(size in (UNKNOWN, wanted) for size, wanted in zip(partial, shape, strict=True))
        tried += 1
    assert tried > 400


def test_an_unknown_size_is_learnt_from_a_later_input() -> None:
    shapes = {"x": [(UNKNOWN, 2)], "w": [(UNKNOWN, UNKNOWN)], "bias": [(4,)], "same": []}
    found, dims = conv_host().shapes("conv", shapes, {"stride": 2, "pad": 1})
    assert found == {"out": [(UNKNOWN,)]}
    assert dims == {"n": UNKNOWN, "k": 4}
    found, _ = conv_host().shapes("conv", {**shapes, "x": [(UNKNOWN, 7, 2)]}, {"stride": 2, "pad": 1})
    assert found == {"out": [(UNKNOWN, 3)]}
    found, _ = conv_host().shapes("conv", {**shapes, "x": [(UNKNOWN, 7, 2)], "same": [(6, 4)]}, {})
    assert found == {"out": [(6, 4)]}


def test_the_many_operators_meet_every_outcome() -> None:
    """The tests above are worth something only if calls succeed and fail in every way."""
    source = random.Random(1)
    outcomes = set()
    for _ in range(4000):
        definition, shapes, values = random_call(source)
        found = computed(many_host(), definition.base, shapes, values)
        words = ("divides by zero", "does not fit 64 bits", "would have size -", "its definition is")
        outcomes.add(next((word for word in words if word in found), "?") if isinstance(found, str) else "fine")
    assert outcomes == {"divides by zero", "does not fit 64 bits", "would have size -", "its definition is", "fine"}


# ---- the operators of the contract: optional, variadic and mirrored ones


@st.composite
def contract_calls(draw: st.DrawFn) -> tuple[Definition, dict[str, list[tuple[int, ...]]]]:
    definition = DEFINITIONS[draw(st.sampled_from(sorted(DEFINITIONS)))]
    names = {name: draw(st.integers(0, 3)) for name in definition.dims}
    batch = tuple(draw(st.lists(st.integers(0, 2), max_size=2)))
    shapes = {}
    for item in definition.inputs:
        least, most = {"required": (1, 1), "optional": (0, 1), "variadic": (1, 3)}[item.arity]
        lead = batch if item.shape.batch else ()
        fits = (*lead, *(fitting(dim, names) for dim in item.shape.dims))
        wrong = st.lists(st.integers(0, 3), max_size=4).map(tuple)
        tensor = st.integers(0, 9).flatmap(lambda pick, fits=fits, wrong=wrong: wrong if pick == 0 else st.just(fits))
        shapes[item.name] = draw(st.lists(tensor, min_size=least, max_size=most))
    return definition, shapes


@settings(deadline=None, max_examples=800)
@given(contract_calls())
def test_c_and_python_agree_on_the_contract(call: tuple[Definition, dict[str, list[tuple[int, ...]]]]) -> None:
    definition, shapes = call
    values = {item.name: 2 for item in definition.attributes if item.kind.name == "int"}
    needed = {"a_float": 0.0, "a_bool": False, "a_str": ""} | ({"mode": ""} if definition.base == "trouble" else {})
    found = computed(host_of("c++"), definition.base, shapes, values | needed)
    assert found == expected(definition, shapes, values)


# ---- messages, word for word


def conv(
    x: Float[Tensor, "*batch n 2"],
    w: Float[Tensor, "k n+1"],
    bias: Float[Tensor, "k"] | None = None,
    same: Float[Tensor, "*batch k"] | None = None,
    *,
    stride: int = 1,
    pad: int = 0,
) -> Float[Tensor, "*batch (n+2*pad-k)//stride+1"]: ...


CONV = definition_of(conv, "demo::conv")


@cache
def conv_host() -> Host:
    return table_host([CONV])


def conv_message(x, w, bias=(), same=(), **values: int) -> str:
    shapes = {"x": [x], "w": [w], "bias": list(bias), "same": list(same)}
    found = computed(conv_host(), "conv", shapes, {"stride": 1, "pad": 0, **values})
    assert found == expected(CONV, shapes, {"stride": 1, "pad": 0, **values})
    assert isinstance(found, str)
    return found


def test_messages() -> None:
    assert (
        conv_message((2,), (3, 6))
        == 'demo::conv: input `x` has shape (2,), 1 dimension; its definition is "*batch n 2", at least 2 dimensions. '
        "Pass a tensor that fits."
    )
    assert (
        conv_message((5, 2), (3, 6, 1))
        == 'demo::conv: input `w` has shape (3, 6, 1), 3 dimensions; its definition is "k n+1", 2 dimensions. '
        "Pass a tensor that fits."
    )
    assert (
        conv_message((5, 3), (3, 6))
        == 'demo::conv: input `x` has shape (5, 3); its definition is "*batch n 2". Pass a tensor that fits.'
    )
    assert (
        conv_message((5, 2), (3, 6), bias=[(4,)])
        == 'demo::conv: input `bias` has shape (4,); its definition is "k", and k is 3 here, from `w`. '
        "Pass a tensor that fits."
    )
    assert (
        conv_message((5, 2), (3, 7))
        == 'demo::conv: input `w` has shape (3, 7); its definition is "k n+1", and n+1 is 6 here. '
        "Pass a tensor that fits."
    )
    assert (
        conv_message((2, 3, 5, 2), (3, 6), same=[(3, 3)])
        == 'demo::conv: input `same` has shape (3, 3); its definition is "*batch k", and *batch is (2, 3) here, from '
        "`x`. Pass a tensor that fits."
    )
    assert (
        conv_message((4, 1, 2), (9, 2))
        == "demo::conv: output `out` would have size -7 in dimension 1 ((n+2*pad-k)//stride+1), with n = 1, pad = 0, "
        "k = 9, stride = 1. Pass inputs and attributes that give a size of 0 or more."
    )
    assert (
        conv_message((5, 2), (3, 6), stride=0)
        == "demo::conv: `(n+2*pad-k)//stride` divides by zero, with n = 5, pad = 0, k = 3, stride = 0. "
        "Pass other attributes or inputs."
    )
    assert (
        conv_message((5, 2), (3, 6), pad=2**62)
        == "demo::conv: `2*pad` does not fit 64 bits, with n = 5, pad = 4611686018427387904, k = 3, stride = 1. "
        "Pass other attributes or inputs."
    )


def test_an_element_of_a_variadic_input_is_named() -> None:
    with pytest.raises(HostError) as caught:
        host_of("c").shapes("total", {"xs": [(2, 3), (2, 4)]})
    assert (
        str(caught.value)
        == 'contract::total: input `xs[1]` has shape (2, 4); its definition is "*batch n", and n is 3 here, from '
        "`xs[0]`. Pass a tensor that fits."
    )


def test_more_dimensions_than_a_tensor_may_have() -> None:
    most = (1,) * 31
    with pytest.raises(HostError, match=r"input `xs` has 33 dimensions; oneop takes 32 at most\. Merge some of them\."):
        host_of("c").shapes("total", {"xs": [(1,) * 33]})
    with pytest.raises(
        HostError, match=r"output `out` has 33 dimensions; oneop takes 32 at most\. Merge some of them\."
    ):
        host_of("c").shapes("spread", {"x": [(*most, 5)]}, {"times": 1})


def test_the_wrong_number_of_tensors() -> None:
    with pytest.raises(HostError) as caught:
        host_of("c").shapes("both", {"a": [], "b": [(3,)]})
    assert str(caught.value) == "contract::both: input `a` is 0 tensors here; the definition has one. Pass as many."
    with pytest.raises(HostError, match="`bias` is 2 tensors here; the definition has one or none"):
        host_of("c").shapes("scaled_linear", {"x": [(2, 3)], "weight": [(4, 3)], "bias": [(4,), (4,)]})
    with pytest.raises(HostError, match="`xs` is 0 tensors here; the definition has one or more"):
        host_of("c").shapes("total", {"xs": []})


def test_a_message_longer_than_its_room_is_cut() -> None:
    with pytest.raises(HostError) as caught:
        host_of("c").shapes("both", {"a": [(2**62,) * 200], "b": [(3,)]})
    assert len(str(caught.value)) == 2047


def test_an_expression_of_a_size_that_only_an_absent_input_binds_is_not_checked() -> None:
    def kernel(
        x: Float[Tensor, "n"], b: Float[Tensor, "m"] | None = None, c: Float[Tensor, "m+1"] | None = None
    ) -> Float[Tensor, "n"]: ...

    definition = definition_of(kernel, "shapes::absent")
    host = table_host([definition])
    fits = {"x": [(2,)], "b": [], "c": [(9,)]}
    assert computed(host, "absent", fits, {}) == expected(definition, fits, {}) == {"out": [(2,)]}
    wrong = {**fits, "b": [(3,)]}
    assert computed(host, "absent", wrong, {}) == expected(definition, wrong, {})
    assert "and m+1 is 4 here" in str(computed(host, "absent", wrong, {}))
