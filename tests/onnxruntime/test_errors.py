"""Kernels that fail, and models that no kernel serves: an error that says what to do, and a runtime that lives on."""

import re

import numpy as np
import pytest

from support.ort_models import feeds, model, operator, session

X = np.arange(5, dtype="float32")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (1, "ortt::failing: the kernel says no"),
        (2, "ortt::failing: the kernel threw an exception: thrown by the kernel"),
        (3, "ortt::failing: the kernel threw"),
        (4, "ortt::failing: the kernel threw an exception: thrown in a loop"),
        (5, "ortt::failing: the kernel gave output `out` no size. Call ctx.resize"),
        (6, "ortt::failing: "),
        (7, "ortt::failing: a ? byte, half of ?? and all of 日"),
        (8, "ortt::failing: the kernel resized output `out` to (6,) and then to (5,). Resize an output once."),
        (9, "ortt::failing: the kernel failed with an empty message"),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_that_fails(how: int, said: str, threads: int) -> None:
    made = session(model(operator("failing"), [X], {"how": how}), intra_op_num_threads=threads)
    for _ in range(3):
        with pytest.raises(Exception, match=re.escape(said)) as caught:
            made.run(None, feeds([X]))
        assert "the_node" in str(caught.value)
    healthy = session(model(operator("failing"), [X]), intra_op_num_threads=threads)
    np.testing.assert_array_equal(healthy.run(None, feeds([X]))[0], X)


def test_an_output_may_be_resized_again_to_the_same_sizes() -> None:
    made = session(model(operator("failing"), [X], {"how": 10}))
    np.testing.assert_array_equal(made.run(None, feeds([X]))[0], X)


def test_a_kernel_in_c_that_fails() -> None:
    made = session(model(operator("scaled"), [X], {"alpha": -1.0}))
    with pytest.raises(Exception, match=r"ortt::scaled: .*alpha is negative"):
        made.run(None, feeds([X]))


def test_an_index_outside() -> None:
    made = session(model(operator("gather"), [X, np.array([9])]))
    with pytest.raises(Exception, match="gather: an index is outside of x"):
        made.run(None, feeds([X, np.array([9])]))


def test_a_dtype_without_a_kernel() -> None:
    with pytest.raises(Exception, match="holds no kernel") as caught:
        session(model(operator("affine"), [np.zeros((2, 3), "float16")]))
    message = str(caught.value)
    assert "ortt::affine: node `the_node` has float16 inputs, and oneop's library of " in message
    assert (
        "Add the dtype to the operator's `dtypes` and build the library again, or make the session without it: the "
        "model then runs the function it carries." in message
    )
    with pytest.raises(Exception, match="ortt::gather: node `the_node` has float32, int8 inputs"):
        session(model(operator("gather"), [X, np.zeros(2, "int8")]))


def test_mixed_dtypes() -> None:
    """ONNX Runtime says so itself; the operator is named."""
    with pytest.raises(Exception, match="Affine"):
        session(model(operator("affine"), [np.zeros((2, 3), "float32"), np.zeros(3, "float64")]))


def test_a_tensor_of_more_dimensions_than_the_binary_interface_has() -> None:
    x = np.zeros((1,) * 33, "float32")
    made = session(model(operator("row_sums"), [x], shapes=[None]))
    with pytest.raises(Exception, match=r"ortt::row_sums: an input has 33 dimensions; at most 32 are supported\."):
        made.run(None, feeds([x]))
