"""The oracle that stands before the clock: small differences of rounding pass, and everything else does not."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from oneop.bench.expected import Expected, expect

GENERATOR = torch.Generator().manual_seed(0)
X, W = torch.randn(40, 30, generator=GENERATOR), torch.randn(20, 30, generator=GENERATOR)


def product(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [inputs[0] @ inputs[1].T]


@pytest.fixture
def expected() -> Expected:
    return expect(product, [X, W], ["out"])


def test_the_reference_in_its_own_dtype_is_right(expected: Expected) -> None:
    assert expected.values[0].dtype == torch.float64
    assert expected.complaint(product([X, W])) is None


def test_another_order_of_summation_is_right(expected: Expected) -> None:
    total = torch.zeros(40, 20)
    for index in range(30):
        total += X[:, index : index + 1] * W[:, index]
    assert expected.complaint([total]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_one_wrong_element_is_found_in_every_dtype(dtype: torch.dtype) -> None:
    expected = expect(product, [X.to(dtype), W.to(dtype)], ["out"])
    got = product([X.to(dtype), W.to(dtype)])[0]
    assert expected.complaint([got]) is None
    got[3, 4] += 2
    said = expected.complaint([got])
    assert said is not None
    assert said.startswith("`out` differs from the reference at 1 of 800 places; at [3, 4] it is ")


def test_nan_and_infinity(expected: Expected) -> None:
    got = product([X, W])[0]
    got[5, 6] = torch.nan
    got[7, 8] += 100
    said = expected.complaint([got])
    assert said is not None
    assert "at 2 of 800 places; at [5, 6] it is nan, and " in said
    both = expect(lambda _: [torch.tensor([torch.nan, torch.inf, 1.0])], [], ["out"])
    assert both.complaint([torch.tensor([torch.nan, torch.inf, 1.0])]) is None
    assert both.complaint([torch.tensor([torch.nan, -torch.inf, 1.0])]) is not None


def test_shapes_dtypes_and_their_number(expected: Expected) -> None:
    assert expected.complaint([torch.zeros(20, 40)]) == "`out` has shape (20, 40), and the reference's has (40, 20)"
    assert (
        expected.complaint([torch.zeros(40, 20, dtype=torch.int64)]) == "`out` is int64, and the reference's is float32"
    )
    assert expected.complaint([product([X, W])[0].double()]) == "`out` is float64, and the reference's is float32"
    assert expected.complaint([]) == "it gives 0 values, and the reference 1"


def test_integers_are_compared_exactly() -> None:
    expected = expect(lambda inputs: [inputs[0].argmax(1)], [X], ["index"])
    assert expected.complaint([X.argmax(1)]) is None
    assert expected.complaint([X.argmax(1).int()]) == "`index` is int32, and the reference's is int64"
    wrong = X.argmax(1)
    wrong[2] += 1
    said = expected.complaint([wrong])
    assert said is not None
    assert said.startswith("`index` differs from the reference at 1 of 40 places; at [2] it is ")
    assert said.endswith(" is right exactly")


def test_a_reference_that_cannot_compute_in_float64_stands_as_it_is() -> None:
    narrow = torch.ones(30, 2)
    expected = expect(lambda inputs: [inputs[0] @ narrow], [X], ["out"])
    assert expected.complaint([X @ narrow]) is None
    assert expected.complaint([X @ narrow + 0.1]) is not None


def test_a_reference_that_knows_no_float64_stands_in_its_own_dtype() -> None:
    """Whatever it raises: a table of dtypes raises KeyError."""
    factors = {torch.float32: 2.0}
    found = expect(lambda inputs: [inputs[0] * factors[inputs[0].dtype]], (torch.tensor([1.5]),), ("out",))
    assert found.values[0].tolist() == [3.0]
