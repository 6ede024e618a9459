"""From an annotated function to the record, and what a signature that does not fit is told."""

from typing import Any, Literal, NamedTuple, Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Complex, Float, Float32, Int, Int64, Shaped
from torch import Tensor

from oneop.definition.attributes import KINDS, REQUIRED
from oneop.definition.signature import camel_case, definition_of
from oneop.errors import DefinitionError


class Pair(NamedTuple):
    values: Float[Tensor, "*batch k"]
    indices: Int64[Tensor, "*batch k"]


class NotTensors(NamedTuple):
    values: Float[Tensor, "n"]
    count: int


def test_the_design_example():
    def scaled_linear(
        x: Float[Tensor, "n k"],
        weight: Float[Tensor, "m k"],
        bias: Float[Tensor, "m"] | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 1,
    ) -> Float[Tensor, "n m"]:
        """alpha * x @ weight.T + beta * bias"""

    definition = definition_of(scaled_linear, "demo::scaled_linear")
    assert (definition.namespace, definition.base, definition.onnx_name) == ("demo", "scaled_linear", "ScaledLinear")
    assert [(i.name, i.arity, str(i.shape), i.has_default) for i in definition.inputs] == [
        ("x", "required", "n k", False),
        ("weight", "required", "m k", False),
        ("bias", "optional", "m", True),
    ]
    assert [(a.name, a.kind.name, a.default) for a in definition.attributes] == [
        ("alpha", "float", 1.0),
        ("beta", "float", 1.0),
    ]
    assert type(definition.attribute("beta").default) is float
    assert [(o.name, str(o.shape)) for o in definition.outputs] == [("out", "n m")]
    assert definition.dims == ("n", "k", "m")
    assert [element.name for element in definition.elements] == ["Float"]
    assert [d.name for d in definition.elements[0].dtypes] == ["float32", "float64", "float16", "bfloat16"]
    assert definition.doc == "alpha * x @ weight.T + beta * bias"


def test_every_kind_of_attribute():
    def every(
        x: Shaped[Tensor, "*batch k"],
        *,
        f: float,
        i: int = 2,
        b: bool = True,
        s: str = "word",
        mode: Literal["a", "b"] = "b",
        level: Literal[1, 2] = 1,
        fs: list[float] = (1, 2.5),
        integers: list[int] = (),
        ss: list[str] = ("p", "q"),
        of: float | None = None,
        oi: Optional[int] = 3,  # noqa: UP045
        ob: bool | None = None,
        os: str | None = None,
        om: Literal["a"] | None = None,
        ofs: list[float] | None = None,
        ois: list[int] | None = (1,),
        oss: list[str] | None = None,
    ) -> Shaped[Tensor, "*batch k"]: ...

    definition = definition_of(every, "demo::every")
    found = {a.name: (a.kind.name, a.default, a.optional, a.choices) for a in definition.attributes}
    assert found == {
        "f": ("float", REQUIRED, False, None),
        "i": ("int", 2, False, None),
        "b": ("bool", True, False, None),
        "s": ("str", "word", False, None),
        "mode": ("str", "b", False, ("a", "b")),
        "level": ("int", 1, False, (1, 2)),
        "fs": ("floats", (1.0, 2.5), False, None),
        "integers": ("ints", (), False, None),
        "ss": ("strings", ("p", "q"), False, None),
        "of": ("float", None, True, None),
        "oi": ("int", 3, True, None),
        "ob": ("bool", None, True, None),
        "os": ("str", None, True, None),
        "om": ("str", None, True, ("a",)),
        "ofs": ("floats", None, True, None),
        "ois": ("ints", (1,), True, None),
        "oss": ("strings", None, True, None),
    }
    assert {kind.name for kind in KINDS} == {a.kind.name for a in definition.attributes}


def test_several_outputs_variadic_inputs_and_fixed_dtypes():
    def top(
        x: Float[Tensor, "*batch n"], mask: Bool[Tensor, "n"], others: list[Float32[Tensor, "n _"]], *, k: int
    ) -> Pair: ...

    definition = definition_of(top, "demo::top", onnx_name="TopFew", layout="strided")
    assert [(o.name, o.element.name, str(o.shape)) for o in definition.outputs] == [
        ("values", "Float", "*batch k"),
        ("indices", "Int64", "*batch k"),
    ]
    assert definition.inputs[2].arity == "variadic"
    assert definition.inputs[2].element.is_fixed
    assert definition.onnx_name == "TopFew"
    assert definition.layout == "strided"
    assert definition.batches == ("batch",)


def test_string_annotations_resolve_in_the_module_and_in_the_scope():
    class Local(NamedTuple):
        y: Float[Tensor, "n"]

    def string(x: 'Float[Tensor, "n"]', *, alpha: "float" = 1.0) -> "Local": ...

    definition = definition_of(string, "demo::string", scope={"Local": Local})
    assert definition.outputs[0].name == "y"
    with pytest.raises(DefinitionError, match="an annotation names `Local`, which its module does not define"):
        definition_of(string, "demo::string")


@given(st.from_regex(r"[a-z][a-z0-9]{0,3}(_[a-z][a-z0-9]{0,3}){0,3}", fullmatch=True))
def test_camel_case_is_an_identifier_without_underscores(base):
    name = camel_case(base)
    assert name.isidentifier()
    assert "_" not in name
    assert name.lower() == base.replace("_", "")


def test_the_fingerprint_follows_the_signature_only():
    def one(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
        """One text."""

    def same(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
        """Another text."""

    def other_default(x: Float[Tensor, "n"], *, alpha: float = 2.0) -> Float[Tensor, "n"]: ...
    def other_dim(x: Float[Tensor, "m"], *, alpha: float = 1.0) -> Float[Tensor, "m"]: ...
    def other_dtype(x: Float32[Tensor, "n"], *, alpha: float = 1.0) -> Float32[Tensor, "n"]: ...
    def other_kind(x: Float[Tensor, "n"], *, alpha: int = 1) -> Float[Tensor, "n"]: ...
    def other_optional(x: Float[Tensor, "n"], *, alpha: float | None = 1.0) -> Float[Tensor, "n"]: ...

    prints = [definition_of(f, "demo::f").fingerprint for f in (one, same, other_default, other_dim, other_dtype)]
    prints += [definition_of(f, "demo::f").fingerprint for f in (other_kind, other_optional)]
    prints += [definition_of(one, "demo::g").fingerprint, definition_of(one, "demo::f", layout="strided").fingerprint]
    assert prints[0] == prints[1]
    assert len(set(prints)) == len(prints) - 1
    assert all(len(value) == 16 for value in prints)


def refuse(function, name="demo::f", **options):
    with pytest.raises(DefinitionError) as caught:
        definition_of(function, name, **options)
    return str(caught.value)


X = Float[Tensor, "n"]


def test_an_annotation_that_is_missing_or_unsupported():
    def bare(x) -> X: ...
    def tensor(x: Tensor) -> X: ...
    def dictionary(x: X, *, options: dict[str, int]) -> X: ...
    def anything(x: X, *, options: Any) -> X: ...
    def positional_attribute(x: X, alpha: float = 1.0) -> X: ...
    def keyword_tensor(x: X, *, y: X) -> X: ...
    def star(*xs: X) -> X: ...
    def union(x: X, *, alpha: float | str = 1.0) -> X: ...
    def mixed(x: X, *, mode: Literal["a", 1] = "a") -> X: ...
    def tensor_default(x: X = torch.zeros(1)) -> X: ...  # noqa: B008
    def bad_default(x: X, *, alpha: float = "high") -> X: ...
    def bad_choice(x: X, *, mode: Literal["a", "b"] = "c") -> X: ...
    def complex_input(x: Complex[Tensor, "n"]) -> X: ...
    def no_result(x: X): ...
    def tuple_result(x: X) -> tuple[X, X]: ...
    def odd_field(x: X) -> NotTensors: ...

    kinds = (
        "An attribute is float, int, bool, str, Literal[...], list[int], list[float], list[str], or `| None` of one of"
        " these."
    )
    assert (
        refuse(bare)
        == 'demo::f: parameter `x` has no annotation. Write an input as `x: Float[Tensor, "n k"]` (jaxtyping); an'
        " attribute is float, int, bool, str, Literal[...], list[int], list[float], list[str], or `| None` of one of"
        " these."
    )
    assert (
        refuse(tensor) == "demo::f: parameter `x` is Tensor, which is no tensor that oneop can describe. "
        'Write an input as `x: Float[Tensor, "n k"]` (jaxtyping).'
    )
    assert refuse(dictionary) == f"demo::f: parameter `options` is dict[str, int], which is no attribute. {kinds}"
    assert refuse(anything) == f"demo::f: parameter `options` is Any, which is no attribute. {kinds}"
    assert (
        refuse(positional_attribute) == "demo::f: parameter `alpha` is float, an attribute, but positional. "
        "Put `*` before it: attributes are keyword-only."
    )
    assert (
        refuse(keyword_tensor)
        == "demo::f: parameter `y` is a tensor, but keyword-only. Put it before `*`: inputs are positional."
    )
    assert (
        refuse(star) == 'demo::f: parameter `xs` takes any number of arguments. Write `xs: list[Float[Tensor, "n k"]]`.'
    )
    assert refuse(union) == f"demo::f: parameter `alpha` is float | str, which is no attribute. {kinds}"
    assert refuse(mixed) == f"demo::f: parameter `mode` is Literal['a', 1], which is no attribute. {kinds}"
    assert "has the default tensor([0.])" in refuse(tensor_default)
    assert "Only an optional input has one, and it is None." in refuse(tensor_default)
    assert (
        refuse(bad_default)
        == "demo::f: parameter `alpha` has the default 'high', which is str, not float. Give a value of type float."
    )
    assert (
        refuse(bad_choice) == "demo::f: parameter `mode` has the default 'c', which is not one of 'a', 'b'. "
        "Give a value of type Literal['a', 'b']."
    )
    assert "parameter `x` is Complex, a dtype that oneop does not know. It knows float32," in refuse(complex_input)
    assert refuse(no_result) == 'demo::f: the result has no annotation; write `-> Float[Tensor, "n m"]`.'
    assert refuse(tuple_result).endswith(
        'Return one tensor, `-> Float[Tensor, "n m"]`, or a NamedTuple of tensors, whose field names name the outputs.'
    )
    assert refuse(odd_field) == "demo::f: output `count` is int. Every field of NotTensors is one tensor."


def test_dimensions_that_nothing_binds():
    def unbound(x: Float[Tensor, "rows"]) -> Float[Tensor, "rowz"]: ...
    def nothing_close(x: Float[Tensor, "n"]) -> Float[Tensor, "n zeta"]: ...
    def anonymous(x: Float[Tensor, "n"]) -> Float[Tensor, "_"]: ...
    def optional_only(x: Float[Tensor, "n"], y: Float[Tensor, "m"] | None) -> Float[Tensor, "m"]: ...
    def float_attribute(x: Float[Tensor, "n"], *, alpha: float) -> Float[Tensor, "n*alpha"]: ...
    def optional_attribute(x: Float[Tensor, "n"], *, pad: int | None) -> Float[Tensor, "n+pad"]: ...
    def unknown_input(x: Float[Tensor, "?n"]) -> Float[Tensor, "3"]: ...
    def shadow(x: Float[Tensor, "pad"], *, pad: int) -> Float[Tensor, "pad"]: ...
    def broadcast(x: Float[Tensor, "#n"]) -> Float[Tensor, "3"]: ...
    def no_group(x: Float[Tensor, "n"]) -> Float[Tensor, "*batch n"]: ...
    def input_expression(x: Float[Tensor, "n+q"]) -> Float[Tensor, "3"]: ...

    assert (
        refuse(unbound) == "demo::f: output `out`: `rowz` names `rowz`, which no input binds. Did you mean `rows`? "
        "For a size that only the kernel knows, write `?rowz`."
    )
    assert (
        refuse(nothing_close) == "demo::f: output `out`: `zeta` names `zeta`, which no input binds. Bound are: n. "
        "For a size that only the kernel knows, write `?zeta`."
    )
    assert "`_` says nothing about its size" in refuse(anonymous)
    assert "`m` needs `m`, which only optional inputs bind" in refuse(optional_only)
    assert "names the attribute `alpha`, which is float. Only int attributes can stand in dimensions." in refuse(
        float_attribute
    )
    assert "names the attribute `pad`, which is int | None. Only int attributes" in refuse(optional_attribute)
    assert "input `x`: `?n` is for outputs. Write `n`: an input's size is always known." in refuse(unknown_input)
    assert "the dimension `pad` shadows the attribute `pad`. Rename one of them" in refuse(shadow)
    assert "parameter `x`: `#n` asks for broadcasting" in refuse(broadcast)
    assert "no input that is always there has the leading group `*batch`" in refuse(no_group)
    assert "input `x`: `n+q` names `n`, which no input binds" in refuse(input_expression)


def test_sizes_that_cannot_be_computed_whatever_the_names_are():
    def result(x: Float[Tensor, "n"]) -> Float[Tensor, "n 7//0"]: ...
    def second(x: Float[Tensor, "n"], y: Float[Tensor, "m n%(3-3)"]) -> Float[Tensor, "n"]: ...
    def optional(x: Float[Tensor, "n"], y: Float[Tensor, "4%0"] | None) -> Float[Tensor, "n"]: ...
    def inside(x: Float[Tensor, "n"], *, k: int) -> Float[Tensor, "max(1,n+k//0)"]: ...
    def large(x: Float[Tensor, "n"]) -> Float[Tensor, "n+4294967296*4294967296"]: ...
    def fine(x: Float[Tensor, "n"], *, k: int) -> Float[Tensor, "n//k 0//3 n%(3-2)"]: ...

    assert refuse(result) == (
        'demo::f: output `out` is "n 7//0", and `7//0` is no size: `7//0` divides by zero. Correct the expression.'
    )
    assert refuse(second) == (
        'demo::f: input `y` is "m n%(3-3)", and `n%(3-3)` is no size: `n%(3-3)` divides by zero. Correct the'
        " expression."
    )
    assert "input `y`" in refuse(optional)
    assert "`max(1,n+k//0)` is no size: `k//0` divides by zero." in refuse(inside)
    assert "is no size: `4294967296*4294967296` does not fit 64 bits." in refuse(large)
    assert str(definition_of(fine, "demo::f").outputs[0].shape) == "n//k 0//3 n%(3-2)"


def test_dtypes_that_nothing_binds():
    def unbound(x: Float[Tensor, "n"]) -> Int[Tensor, "n"]: ...
    def optional_only(x: Float[Tensor, "n"], i: Int[Tensor, "n"] | None) -> Int[Tensor, "n"]: ...

    for function in (unbound, optional_only):
        assert refuse(function) == (
            "demo::f: output `out` is Int, but no input that is always there is. Write a fixed dtype, such as"
            " Int64, or the class of an input."
        )


def test_names_that_c_cannot_use_or_that_clash():
    def keyword(x: X, *, double: float) -> X: ...
    def dimension(x: Float[Tensor, "int"]) -> Float[Tensor, "3"]: ...
    def underscore(_x: X) -> X: ...
    def unicode(größe: X) -> X: ...
    def same(n: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...
    def output(out: X) -> X: ...
    def needs(x: X, *, needs: int) -> X: ...

    assert (
        refuse(keyword)
        == "demo::f: the attribute `double` needs another name: C, C++ or Python cannot use it as a name. For example"
        " `my_double`."
    )
    assert "the dimension `int` needs another name" in refuse(dimension)
    assert "For example `my_x`" in refuse(underscore)
    assert "For example `my_gr_e`" in refuse(unicode)
    assert "`n` names both the input and the dimension" in refuse(same)
    assert "`out` names both the input and the output" in refuse(output)
    assert "it is used by oneop" in refuse(needs)


def test_names_of_operators():
    def f(x: X) -> X: ...

    for name in ("scaled", "demo::", "::f", "demo::a b", "demo:f", "demo::é", "demo::1f", "a::b::c"):
        assert "is not the name of an operator" in refuse(f, name)
    assert "the namespace `aten` belongs to PyTorch. Choose your own." in refuse(f, "aten::f")
    assert "`double` cannot be a name in C and C++" in refuse(f, "demo::double")
    assert "layout='nhwc' is not known" in refuse(f, "demo::f", layout="nhwc")
    assert "onnx_name='a b' is not a name" in refuse(f, "demo::f", onnx_name="a b")


def test_inputs_there_must_be():
    def none(*, alpha: float) -> Float[Tensor, "3"]: ...
    def all_optional(x: X | None) -> Float32[Tensor, "3"]: ...
    def early(xs: list[X], y: X) -> X: ...

    assert (
        refuse(none) == "demo::f: there is no input. An operator takes at least one tensor, as a positional parameter."
    )
    assert "every input is optional" in refuse(all_optional)
    assert "parameter `xs` is variadic, but others follow. Put the list of tensors last." in refuse(early)


def test_arrays_of_other_packages_are_no_tensors():
    import numpy as np

    def array(x: Float[np.ndarray, "n"]) -> X: ...

    assert "parameter `x` is Float[ndarray, 'n'], which is no tensor that oneop can describe" in refuse(array)


def test_a_default_that_is_no_unicode():
    def surrogate(x: X, *, s: str = "\udcff") -> X: ...

    assert refuse(surrogate) == (
        "demo::f: parameter `s` has the default '\\udcff', which is not valid Unicode. Give a value of type str."
    )
