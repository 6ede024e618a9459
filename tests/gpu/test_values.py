"""Values on the GPU against the reference in float64, for every operator, dtype and size."""

from collections.abc import Callable
from typing import Any

import cuda_operators
import pytest
import torch
from torch import Tensor

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WIDE = [torch.float32, torch.float64]
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 2e-5, torch.float64: 1e-12}


def rows(n: int, m: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(n, m, dtype=torch.float64).to(dtype)


Case = tuple[Any, tuple[Any, ...], dict[str, Any]]


def cases(dtype: torch.dtype, size: int) -> dict[str, Case]:
    """Inputs on the CPU: the oracle is the reference there, in float64."""
    x, y = rows(3, size, dtype), rows(3, size, dtype)
    found: dict[str, Case] = {
        "axpby": (cuda_operators.axpby, (x, y), {"alpha": 1.5, "beta": -0.25}),
        "axpby of many dimensions": (cuda_operators.axpby, (x.reshape(3, 1, 1, size), y.reshape(3, 1, 1, size)), {}),
    }
    if size > 0:
        found["extremes"] = (cuda_operators.extremes, (x,), {})
    if dtype in WIDE:
        found |= {
            "positive": (cuda_operators.positive, (x[0],), {}),
            "blend": (cuda_operators.blend, (x[0], None, [y[0], y[1], x[1]]), {}),
            "blend with a weight": (cuda_operators.blend, (x[0], y[2], [y[0]]), {}),
            "polynomial": (cuda_operators.polynomial, (x,), {"coefficients": [0.5, -1.0, 0.125]}),
            "polynomial of every kind": (
                cuda_operators.polynomial,
                (x,),
                {"coefficients": [1.0], "mode": "even", "offset": -1.5, "clip": True},
            ),
            "gather_columns": (cuda_operators.gather_columns, (x, torch.arange(size).flip(0)), {}),
            "gather_columns of a transposed tensor": (
                cuda_operators.gather_columns,
                (rows(size, 4, dtype).t(), torch.arange(size)),
                {},
            ),
        }
        if size > 0:
            found["spread"] = (cuda_operators.spread, (x,), {})
    return found


def on(device: str, value: Any) -> Any:
    if isinstance(value, list):
        return [on(device, item) for item in value]
    return value.to(device) if isinstance(value, Tensor) else value


def exact(value: Any) -> Any:
    if isinstance(value, list):
        return [exact(item) for item in value]
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def outputs(value: Any) -> tuple[Tensor, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(dtype: torch.dtype, size: int) -> None:
    for name, (operator, inputs, attributes) in cases(dtype, size).items():
        found = outputs(operator(*(on("cuda", item) for item in inputs), **attributes))
        expected = outputs(operator.reference(*map(exact, inputs), **attributes))
        for own, other in zip(found, expected, strict=True):
            assert own.device.type == "cuda", name
            assert own.dtype == (dtype if other.is_floating_point() else other.dtype), name
            limit = TOLERANCE[dtype]
            torch.testing.assert_close(
                own.cpu().to(other.dtype),
                other,
                rtol=limit,
                atol=limit * 10,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x, keep = torch.randint(-3, 9, (1000,), dtype=dtype), torch.rand(1000) > 0.3
    found = cuda_operators.tally(x.to("cuda"), keep.to("cuda"), bins=6)
    assert found.cpu().tolist() == cuda_operators.tally.reference(x, keep, bins=6).tolist()


@pytest.mark.parametrize(
    "change", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:1].expand(5, -1), lambda x: x[2:]]
)
def test_inputs_in_any_layout_reach_the_kernel_contiguous(change: Callable[[Tensor], Tensor]) -> None:
    x = change(torch.randn(6, 6, dtype=torch.float64))
    y = change(torch.randn(6, 6, dtype=torch.float64))
    found = cuda_operators.axpby(change_on_gpu(x), change_on_gpu(y), alpha=2.0)
    torch.testing.assert_close(found.cpu(), 2 * x + y)


def change_on_gpu(x: Tensor) -> Tensor:
    """The same strides on the GPU."""
    made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
    if 0 in x.stride():
        return x[:1].to("cuda").expand(x.shape)
    made.copy_(x)
    assert made.stride() == x.stride()
    return made


def test_infinities_and_nan_pass_through() -> None:
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e38])
    found = cuda_operators.axpby(x.to("cuda"), torch.zeros(6, device="cuda"), alpha=10.0).cpu()
    torch.testing.assert_close(found, 10 * x, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_round_as_torch_rounds(dtype: torch.dtype) -> None:
    """Every value of the type, times one, comes back; halves between two values go to the even one."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype)
    x = x[x.isfinite()]
    same = cuda_operators.axpby(x.to("cuda"), torch.zeros_like(x).to("cuda")).cpu()
    assert torch.equal(same, x)
    halved = cuda_operators.axpby(x.to("cuda"), torch.zeros_like(x).to("cuda"), alpha=1.0 / 3.0).cpu()
    expected = (x.float() * torch.tensor(1.0 / 3.0)).to(dtype)
    assert torch.equal(halved, expected)


def test_many_elements(many: int) -> None:
    x, y = torch.randn(many), torch.randn(many)
    found = cuda_operators.axpby(x.to("cuda"), y.to("cuda"), alpha=0.5, beta=2.0).cpu()
    torch.testing.assert_close(found, 0.5 * x + 2.0 * y)


def test_more_elements_than_32_bits_count(real_gpu: None) -> None:
    size = 2**31 + 1000
    if torch.cuda.mem_get_info()[0] < 8 * size:
        pytest.skip(f"this test needs {8 * size / 1e9:.0f} GB of the GPU's memory")
    x = torch.ones(size, dtype=torch.float16, device="cuda")
    x[-1] = 5
    found = cuda_operators.axpby(x, x, alpha=1.0, beta=1.0)
    assert found[-1].item() == 10
    assert found[2**31].item() == 2
    assert found.sum(dtype=torch.float64).item() == 2 * size + 8
