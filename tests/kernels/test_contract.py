"""What a kernel is promised, in C++ and in C: every test calls both, through a host that is written in Python."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.contract_host import host_of
from kernels.ctypes_host import Array, Host, HostError, array, from_bfloat16, to_bfloat16

from oneop.definition.dtypes import BY_NAME

RANDOM = np.random.default_rng(7)


@pytest.fixture(params=["c++", "c"])
def host(request: pytest.FixtureRequest) -> Host:
    return host_of(request.param)


@pytest.fixture
def cpp() -> Host:
    return host_of("c++")


def message(host: Host, base: str, *inputs, **attributes) -> str:
    with pytest.raises(HostError) as caught:
        host.run(base, *inputs, **attributes)
    return str(caught.value)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


# ---- tensors


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_dtype_that_a_kernel_is_written_for(host: Host, dtype: str) -> None:
    x, weight, bias = (array(normal(*shape), dtype) for shape in ((5, 3), (4, 3), (4,)))
    plain = [from_bfloat16(a.values) if dtype == "bfloat16" else a.values for a in (x, weight, bias)]
    exact = [values.astype("float64") for values in plain]
    wanted = array(2.0 * exact[0] @ exact[1].T + 0.5 * exact[2], dtype).values
    found = host.run("scaled_linear", x, weight, bias, alpha=2.0, beta=0.5)["out"]
    wanted = from_bfloat16(wanted) if dtype == "bfloat16" else wanted
    digits = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(found.astype("float64"), wanted.astype("float64"), rtol=digits, atol=digits)


def test_an_absent_optional_input(host: Host) -> None:
    x, weight = array(normal(2, 3)), array(normal(4, 3))
    found = host.run("scaled_linear", x, weight, None, alpha=3.0)["out"]
    np.testing.assert_allclose(found, 3 * x.values @ weight.values.T, rtol=1e-5)


@pytest.mark.parametrize(("n", "m", "k"), [(0, 4, 3), (2, 0, 3), (2, 4, 0)])
def test_sizes_of_zero(host: Host, n: int, m: int, k: int) -> None:
    found = host.run("scaled_linear", array(normal(n, k)), array(normal(m, k)), array(normal(m)), beta=2.0)
    assert found["out"].shape == (n, m)
    assert found.dims == {"n": n, "k": k, "m": m}


def test_a_gradient_computes_what_is_needed(host: Host) -> None:
    grad, x, weight, bias = (array(normal(*shape)) for shape in ((5, 4), (5, 3), (4, 3), (4,)))
    wanted = {
        "grad_x": 2 * grad.values @ weight.values,
        "grad_weight": 2 * grad.values.T @ x.values,
        "grad_bias": 3 * grad.values.sum(0),
    }
    untouched = np.frombuffer(b"\xa5" * 4, "float32")[0]
    for needs in (*range(8), -1):
        found = host.run("scaled_linear_grad", grad, x, weight, bias, alpha=2.0, beta=3.0, needs=needs)
        for bit, (name, values) in enumerate(wanted.items()):
            if needs >> bit & 1:
                np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
            else:
                assert found[name].shape == values.shape
                assert (found[name] == untouched).all()


def test_bits_of_needs_count_inputs_without_gradients_too(host: Host) -> None:
    grad, a, b = (array(normal(3)) for _ in range(3))
    mask, times = array([True, False, True], "bool"), array([1, 2, 3], "int64")
    wanted = {  # the bit is the input's place: mask 0, a 1, times 2, b 3
        1: ("grad_a", np.where(mask.values, grad.values * times.values, 0)),
        3: ("grad_b", np.where(mask.values, 0, grad.values)),
    }
    untouched = np.frombuffer(b"\xa5" * 4, "float32")[0]
    for needs in (*range(16), -1):
        found = host.run("choose_grad", grad, mask, a, times, b, needs=needs)
        for bit, (name, values) in wanted.items():
            if needs >> bit & 1:
                np.testing.assert_allclose(found[name], values, rtol=1e-5)
            else:
                assert (found[name] == untouched).all()


def test_the_gradient_of_an_absent_input_is_empty_and_not_needed(host: Host) -> None:
    grad, x, weight = (array(normal(*shape)) for shape in ((5, 4), (5, 3), (4, 3)))
    found = host.run("scaled_linear_grad", grad, x, weight, None)
    assert found["grad_bias"].shape == (0,)
    np.testing.assert_allclose(found["grad_x"], grad.values @ weight.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 0, 3), (1, 1, 5)])
def test_batches_are_collapsed_and_variadic_inputs_are_spans(host: Host, dtype: str, batch: tuple[int, ...]) -> None:
    xs = [array(RANDOM.integers(-4, 5, (*batch, 4)), dtype) for _ in range(3)]
    found = host.run("total", xs, scale=2.0)["out"]
    assert found.shape == (*batch, 4)
    plain = [from_bfloat16(x.values) if dtype == "bfloat16" else x.values for x in xs]
    np.testing.assert_array_equal(found, 2 * sum(plain))


def test_the_gradient_of_a_variadic_input(host: Host) -> None:
    grad, xs = array(normal(2, 3, 4)), [array(normal(2, 3, 4)) for _ in range(5)]
    found = host.run("total_grad", grad, xs, scale=2.0).outputs["grad_xs"]
    assert len(found) == 5
    for e, values in enumerate(found):
        np.testing.assert_allclose(values, 2 * grad.values + e, rtol=1e-5)
    untouched = host.run("total_grad", grad, xs, needs=0).outputs["grad_xs"]
    assert len(untouched) == 5


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_dtype_variables(host: Host, dtype: str, index: str) -> None:
    x = array(normal(4, 3), dtype)
    found = host.run("gather", x, array([2, 0, 2], index))["out"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, x.values[[2, 0, 2]])


def test_no_dtype_variable(host: Host) -> None:
    found = host.run("both", array([True, True, False, False], "bool"), array([True, False, True, False], "bool"))
    np.testing.assert_array_equal(found["out"], [True, False, False, False])


def test_a_fixed_dtype_beside_a_variable_and_no_dimension(host: Host) -> None:
    x, y = array(normal(100)), array(normal(100))
    found = host.run("dot", x, y)["out"]
    assert found.shape == ()
    np.testing.assert_allclose(found, x.values @ y.values, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float64", "int16", "bool"])
def test_names_that_the_glue_uses_itself(host: Host, dtype: str) -> None:
    values = array(RANDOM.integers(0, 2, (2, 3, 4)), dtype)
    found = host.run("odd_names", values, None, x=2)["out"]
    np.testing.assert_array_equal(found, np.tile(values.values, (1, 2, 1)).transpose(2, 1, 0))
    filled = host.run("odd_names", values, array(1, dtype))["out"]
    np.testing.assert_array_equal(filled, np.ones((4, 3, 2), dtype))


# ---- strides


STRIDED = {
    "contiguous": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "stride 0": lambda x: np.broadcast_to(x[..., :1, :], x.shape),
    "backwards": lambda x: x[..., ::-1, ::-1],
    "sliced": lambda x: np.repeat(np.repeat(x, 2, -1), 3, -2)[..., ::3, ::2],
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1), (1, 1), (0,)])
def test_strided_inputs(host: Host, name: str, batch: tuple[int, ...]) -> None:
    values = STRIDED[name](normal(*batch, 4, 5).astype("float32"))
    y = normal(10).astype("float32")[::2]
    found = host.run("transpose", Array(values, BY_NAME["float32"]), Array(y, BY_NAME["float32"]))["out"]
    np.testing.assert_array_equal(found, (values + y).swapaxes(-1, -2))


def test_a_batch_that_is_one_expanded_row(host: Host) -> None:
    row = np.broadcast_to(normal(4, 5).astype("float32"), (2, 3, 4, 5))
    found = host.run("transpose", Array(row, BY_NAME["float32"]), None)["out"]
    np.testing.assert_array_equal(found, row.swapaxes(-1, -2))


# ---- attributes


EXAMPLES = {"a_float": 0.1, "an_int": -7, "a_bool": True, "a_str": "é ☃", "a_choice": "general"}


def shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.17g}"
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case list() | tuple():
            return "[" + "".join(f"{shown(item)};" for item in (*value, *value)) + "]"
    raise AssertionError(value)


def shown_by_kernel(host: Host, **attributes) -> str:
    return bytes(host.run("show", array(normal(1)), **attributes)["out"]).decode()


def all_values(host: Host, **attributes) -> list[object]:
    definition = next(item for item in host.definitions if item.base == "show")
    return [attributes.get(item.name, item.default) for item in definition.attributes]


def test_every_kind_of_attribute(host: Host) -> None:
    assert shown_by_kernel(host, **EXAMPLES) == " ".join(map(shown, all_values(host, **EXAMPLES)))
    more = EXAMPLES | {
        "maybe_float": -0.0,
        "maybe_int": 2**63 - 1,
        "maybe_bool": False,
        "maybe_str": "",
        "maybe_floats": [],
        "maybe_ints": [-(2**63)],
        "maybe_strings": ["", "b"],
    }
    assert shown_by_kernel(host, **more) == " ".join(map(shown, all_values(host, **more)))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
number = st.floats(allow_nan=False, allow_infinity=False)
integer = st.integers(-(2**63), 2**63 - 1)
attributes = st.fixed_dictionaries(
    {
        "a_float": number,
        "an_int": integer,
        "a_bool": st.booleans(),
        "a_str": text,
        "a_choice": st.sampled_from(["dot", "general"]),
        "floats": st.lists(number, max_size=3),
        "ints": st.lists(integer, max_size=3),
        "strings": st.lists(text, max_size=3),
        "maybe_float": st.none() | number,
        "maybe_int": st.none() | integer,
        "maybe_bool": st.none() | st.booleans(),
        "maybe_str": st.none() | text,
        "maybe_floats": st.none() | st.lists(number, max_size=3),
        "maybe_ints": st.none() | st.lists(integer, max_size=3),
        "maybe_strings": st.none() | st.lists(text, max_size=3),
    }
)


@pytest.mark.parametrize("language", ["c++", "c"])
@settings(deadline=None, max_examples=50)
@given(values=attributes)
def test_attributes_arrive_as_they_are_given(language: str, values: dict[str, object]) -> None:
    host = host_of(language)
    assert shown_by_kernel(host, **values) == " ".join(map(shown, all_values(host, **values)))


# ---- sizes that only the kernel knows


def test_outputs_that_the_kernel_sizes(host: Host) -> None:
    x = np.where(RANDOM.random((6, 5)) < 0.4, normal(6, 5), 0).astype("float32")
    found = host.run("find", array(x))
    np.testing.assert_array_equal(found["places"], np.argwhere(x))
    np.testing.assert_array_equal(found["values"], x[x != 0])
    assert found["rows"] == (x != 0).any(1).sum()


def test_an_output_of_no_elements(host: Host) -> None:
    found = host.run("find", array(np.zeros((2, 3))))
    assert found["places"].shape == (0, 2)
    assert found["values"].shape == (0,)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0, 2)])
def test_a_batch_and_an_unknown_size(host: Host, batch: tuple[int, ...]) -> None:
    x = normal(*batch, 4).astype("float32")
    found = host.run("spread", array(x), times=3)["out"]
    assert found.shape == (*batch, 3, 2)
    np.testing.assert_array_equal(found, np.repeat(x[..., None, [0, -1]], 3, -2))


def test_resizing_that_breaks_the_rules(host: Host) -> None:
    x = array([[1.0, 0.0, 2.0]])
    after = {mode: message(host, "find", x, mode=mode).removeprefix("contract::find: ") for mode in (1, 2, 3, 4, 6, 7)}
    wrong = "ctx.resize" if host is host_of("c++") else "oneop_resize"
    assert after == {
        1: "the kernel gave output `places` no size. Call ctx.resize (in C: oneop_resize) on it before the end.",
        2: "the kernel resizes output `places` to 3 in dimension 1, which is 2",
        3: "the kernel resizes output `places` to -1 in dimension 0",
        4: f"{wrong} is for outputs with `?` dimensions; the sizes of this one are known",
        6: "the host has no memory for this",
        7: "the kernel gave `?count` the sizes 2 and 3. Give it one.",
    }


def test_a_wrong_number_of_sizes(cpp: Host) -> None:
    assert (
        message(cpp, "find", array([[1.0]]), mode=5)
        == "contract::find: ctx.resize is given 1 sizes for an output of 2 dimensions"
    )


# ---- failing


def test_a_kernel_that_fails(host: Host) -> None:
    assert message(host, "trouble", array(normal(3)), mode="fail").endswith("n is 3")
    assert message(host, "trouble", array(normal(3)), mode="parallel fail").endswith("in parallel")
    assert message(host, "gather", array(normal(4, 3)), array([1, 4], "int64")).endswith("index 4 is not below 4")


def test_a_long_message_is_cut(host: Host) -> None:
    found = message(host, "trouble", array(normal(3)), mode="long")
    assert found.endswith("x" * 900)
    assert len(found) == 1023


def test_a_long_message_is_cut_between_characters(host: Host) -> None:
    lengths = set()
    for n in (1, 2, 3, 4):
        found = message(host, "trouble", array(normal(n)), mode="long characters")
        text = found[found.index("x" * n) + n :]
        assert text == "日" * len(text)
        lengths.add(len(found.encode()))
    assert lengths == {1021, 1022, 1023}


def test_an_empty_message(host: Host) -> None:
    assert message(host, "trouble", array(normal(3)), mode="empty").endswith("the kernel failed with an empty message")


def test_exceptions_become_messages(cpp: Host) -> None:
    modes = (
        *("fail", "throw", "throw int", "no memory", "parallel fail", "parallel throw", "parallel throw int"),
        *("scratch", "scratch count", "scratch negative"),
    )
    assert {mode: message(cpp, "trouble", array(normal(3)), mode=mode) for mode in modes} == {
        "fail": "contract::trouble: n is 3",
        "throw": "contract::trouble: the kernel threw an exception: 100% broken",
        "throw int": "contract::trouble: the kernel threw an exception that is no std::exception.",
        "no memory": "contract::trouble: the kernel ran out of memory. Pass smaller inputs.",
        "parallel fail": "contract::trouble: in parallel",
        "parallel throw": "contract::trouble: the kernel threw an exception: in parallel",
        "parallel throw int": "contract::trouble: the kernel threw an exception that is no std::exception.",
        "scratch": "contract::trouble: the kernel ran out of memory. Pass smaller inputs.",
        "scratch count": "contract::trouble: the kernel ran out of memory. Pass smaller inputs.",
        "scratch negative": "contract::trouble: the kernel asks for -1 bytes of scratch memory",
    }


def test_a_kernel_in_c_that_says_nothing() -> None:
    assert (
        message(host_of("c"), "trouble", array(normal(3)), mode="silent")
        == 'contract::trouble: the kernel returned 7 and no message. End it with `return oneop_fail(ctx, "...");`.'
    )


def test_a_call_after_one_that_failed(host: Host) -> None:
    message(host, "trouble", array(normal(3)), mode="fail")
    x = array(normal(3))
    np.testing.assert_array_equal(host.run("trouble", x, mode="")["out"], x.values)


def test_no_scratch_memory_for_the_glue(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of("c")
    monkeypatch.setattr(host, "scratch_limit", 0)
    assert (
        message(host, "total", [array(normal(2))])
        == "contract::total: the kernel ran out of memory. Pass smaller inputs."
    )


def test_concurrent_calls(host: Host) -> None:
    xs = [array(normal(40, 8)) for _ in range(8)]
    weight = array(normal(6, 8))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: host.run("scaled_linear", x, weight, None)["out"], xs * 4))
    for x, values in zip(xs * 4, found, strict=True):
        np.testing.assert_allclose(values, x.values @ weight.values.T, rtol=1e-4, atol=1e-5)


# ---- the host in Python is honest


def test_the_bfloat16_of_the_tests() -> None:
    assert to_bfloat16([1.0, -2.0, math.inf]).tolist() == [0x3F80, 0xC000, 0x7F80]
    assert from_bfloat16(np.array([0x3F80, 0xC000], "uint16")).tolist() == [1.0, -2.0]
