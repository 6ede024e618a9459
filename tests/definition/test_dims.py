"""Dimension expressions: reading, writing and evaluating them."""

import pytest
from hypothesis import given

from oneop.definition.dims import (
    INT64_MAX,
    INT64_MIN,
    Anything,
    Binary,
    Call,
    DimError,
    Name,
    Number,
    Unknown,
    evaluate,
    names,
    parse_expression,
    parse_shape,
)
from support.expressions import expressions, values


@given(expressions)
def test_an_expression_reads_back_as_written(expr):
    assert parse_expression(str(expr)) == expr


@given(expressions, values)
def test_evaluation_is_python_arithmetic(expr, scope):
    try:
        wanted = eval(str(expr), {"min": min, "max": max}, dict(scope))
    except ZeroDivisionError:
        with pytest.raises(DimError, match=r"divides by zero|does not fit 64 bits"):
            evaluate(expr, scope)
        return
    if _leaves_64_bits(expr, scope):
        with pytest.raises(DimError, match="does not fit 64 bits"):
            evaluate(expr, scope)
    else:
        assert evaluate(expr, scope) == wanted


def _leaves_64_bits(expr, scope):
    """Whether the expression or a part of it, computed without limits, is outside 64 bits."""
    match expr:
        case Binary(_, left, right):
            parts = [left, right]
        case Call(_, arguments):
            parts = list(arguments)
        case _:
            return False
    try:
        value = eval(str(expr), {"min": min, "max": max}, dict(scope))
    except ZeroDivisionError:
        value = 0
    return not INT64_MIN < value <= INT64_MAX or any(_leaves_64_bits(part, scope) for part in parts)


@given(expressions)
def test_names_are_those_in_the_text(expr):
    assert set(names(expr)) == {name for name in ("n", "k", "h", "pad", "stride") if _word(name, str(expr))}


def _word(name, text):
    import re

    return re.search(rf"\b{name}\b", text)


def test_a_shape_has_a_group_names_numbers_and_expressions():
    shape = parse_shape("*batch n 3 _ ?k (h+2*pad-k)//stride+1 rows=4")
    assert shape.batch == "batch"
    assert shape.dims[:4] == (Name("n"), Number(3), Anything(), Unknown("k"))
    assert shape.dims[5] == Number(4)
    assert str(shape) == "*batch n 3 _ ?k (h+2*pad-k)//stride+1 4"
    assert list(shape.binds()) == ["n"]
    assert list(shape.unknown()) == ["k"]
    assert parse_shape("").dims == ()


def test_negation_is_zero_minus():
    assert evaluate(parse_expression("-n+3"), {"n": 1}) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n *batch", "`*batch` stands behind other dimensions; a group of leading dimensions comes first"),
        ("... n", "`...` has no name; write `*batch` first, so that outputs can name it"),
        ("#n", "`#n` asks for broadcasting; give the sizes that differ names of their own, or `1`"),
        ("?3", "`?3` is not a dimension; `3` is not a name"),
        ("n+", "`n+` is not an expression (write it without spaces)"),
        (
            "n/2",
            "`n/2` is not a dimension; it may hold names, integers, + - * // %, min(a,b), max(a,b) and parentheses",
        ),
        (
            "abs(n)",
            "`abs(n)` is not a dimension; it may hold names, integers, + - * // %, min(a,b), max(a,b) and parentheses",
        ),
        (
            "min(n)",
            "`min(n)` is not a dimension; it may hold names, integers, + - * // %, min(a,b), max(a,b) and parentheses",
        ),
        (
            "True",
            "`True` is not a dimension; it may hold names, integers, + - * // %, min(a,b), max(a,b) and parentheses",
        ),
        ("9223372036854775808", "`9223372036854775808` in `9223372036854775808` does not fit 64 bits"),
    ],
)
def test_what_is_no_dimension_says_so(text, message):
    with pytest.raises(DimError) as caught:
        parse_shape(text)
    assert str(caught.value) == message


def test_deep_nesting_is_an_error_and_no_crash():
    with pytest.raises(DimError):
        parse_expression("(" * 5000 + "n" + ")" * 5000)
    with pytest.raises(DimError):
        parse_expression("+".join(["n"] * 50000))
