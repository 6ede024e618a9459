"""CUDA kernels in libraries for ONNX Runtime: in the runtime of this machine, and in a pretended one with a GPU."""

from pathlib import Path

import cuda_operators as gallery
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import torch
from emulation import emulated
from fake_ort import FakeError, FakeRuntime

import oneop
from oneop.kernels.building import build
from oneop.kernels.devices import specs_for
from oneop.targets.onnxruntime.library import describe

CUDA = "CUDAExecutionProvider"


@pytest.fixture(scope="module")
def library() -> Path:
    """The gallery's kernels: those for the CPU, and those for CUDA, emulated."""
    specs = [
        emulated(spec) if spec.device == "cuda" else spec
        for spec in specs_for(gallery.every_operator(), ("cpu", "cuda"))
    ]
    return build(describe(specs))


@pytest.fixture
def runtime(library: Path) -> FakeRuntime:
    return FakeRuntime(library)


def test_what_is_registered_for_each_provider(runtime: FakeRuntime) -> None:
    providers = {(item.name, item.provider) for item in runtime.registrations}
    assert ("Axpby", None) in providers
    assert ("Axpby", CUDA) in providers
    floats = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
    assert {item.input_types[0] for item in runtime.registrations if item.name == "Axpby"} == set(floats)
    assert [item.memory_types for item in runtime.registrations if item.provider == CUDA] != []
    assert all(item.memory_types <= {0} for item in runtime.registrations)


def test_only_what_has_a_kernel_is_registered_for_cuda(runtime: FakeRuntime) -> None:
    types = {item.input_types[0] for item in runtime.registrations if (item.name, item.provider) == ("Spread", CUDA)}
    assert types == {np.float32, np.float64}


def test_a_release_whose_scratch_memory_knows_no_stream(library: Path) -> None:
    old = FakeRuntime(library, "1.17.3")
    assert {item.provider for item in old.registrations} == {None}
    assert old.asked_for == [17]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_numbers_of_every_dtype(runtime: FakeRuntime, dtype: type) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 3, 7)).astype(dtype)
    (found,) = runtime.on(CUDA, "Axpby", dtype).run([x, y], {"alpha": 2.0, "beta": -0.5})
    expected = 2.0 * x.astype(np.float64) - 0.5 * y.astype(np.float64)
    tolerance = {2: 1e-2, 4: 1e-6, 8: 1e-14}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_the_stream_and_the_device_of_the_runtime(runtime: FakeRuntime) -> None:
    where = runtime.on(CUDA, "Whereabouts", np.float32)
    assert where.run([np.ones(3, np.float32)], stream=0x7000, device=1)[0].tolist() == [0x7000, 1]
    assert where.run([np.ones(3, np.float32)], stream=0, device=0)[0].tolist() == [0, 0]


def test_scratch_memory_comes_from_the_provider_and_goes_back(runtime: FakeRuntime) -> None:
    x = np.random.default_rng(0).normal(size=(5, 300))
    (found,) = runtime.on(CUDA, "Spread", np.float64).run([x])
    np.testing.assert_allclose(found, x.var(axis=1))
    assert runtime.freed == 1
    assert runtime.scratch == {}


def test_sizes_that_only_the_kernel_knows(runtime: FakeRuntime) -> None:
    x = np.array([1.0, -2.0, 0.0, 3.0, 4.0], np.float32)
    values, places = runtime.on(CUDA, "Positive", np.float32).run([x], n_outputs=2)
    assert values.tolist() == [1.0, 3.0, 4.0]
    assert places.tolist() == [0, 3, 4]
    assert runtime.on(CUDA, "Positive", np.float32).run([-np.abs(x)], n_outputs=2)[0].shape == (0,)


def test_an_output_that_the_model_does_not_use(runtime: FakeRuntime) -> None:
    """It gets memory of the GPU's, not of the machine's."""
    x = np.array([[1.0, 5.0, 2.0]], np.float32)
    (total,) = runtime.on(CUDA, "Extremes", np.float32).run([x], n_outputs=1)
    assert total.tolist() == [8.0]
    assert runtime.freed == 2


@pytest.mark.parametrize("weight", [None, np.array([2.0, 0.5], np.float32)])
def test_optional_and_variadic_inputs(runtime: FakeRuntime, weight: np.ndarray | None) -> None:
    x = np.array([1.0, 2.0], np.float32)
    (found,) = runtime.on(CUDA, "Blend", np.float32).run([x, weight, x * 10, x * 100])
    np.testing.assert_array_equal(found, 111 * x * (1 if weight is None else weight))


def test_attributes(runtime: FakeRuntime) -> None:
    x = np.array([-1.0, 2.0])
    given = {"coefficients": [1.0, 0.0, -2.0], "mode": "even", "offset": 0.25, "clip": 0}
    (found,) = runtime.on(CUDA, "Polynomial", np.float64).run([x], given)
    expected = gallery.polynomial.reference(torch.tensor(x), **{**given, "clip": False})
    np.testing.assert_allclose(found, expected.numpy())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fail", "gpu::failing: as it was asked to"),
        ("launch", "gpu::failing: CUDA reports cudaErrorInvalidConfiguration: invalid configuration argument"),
        ("check", "gpu::failing: CUDA reports cudaErrorInvalidValue: invalid argument"),
        ("memory", "gpu::failing: the arena of the GPU is full"),
    ],
)
def test_failures_are_the_runtimes_errors(runtime: FakeRuntime, how: str, message: str) -> None:
    failing = runtime.on(CUDA, "Failing", np.float32)
    x = np.ones(3, np.float32)
    with pytest.raises(FakeError) as caught:
        failing.run([x], {"how": how})
    assert str(caught.value) == message
    assert failing.run([x], {"how": "not at all"})[0].tolist() == [1.0, 1.0, 1.0]
    assert runtime.scratch == {}


def test_the_same_library_in_a_runtime_without_a_gpu(library: Path, tmp_path: Path) -> None:
    """What is registered for CUDA does not disturb: the node runs on the CPU."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return gallery.axpby(x, y, alpha=3.0)

    x, y = torch.randn(2, 5), torch.randn(2, 5)
    oneop.export(Model().eval(), (x, y), tmp_path / "model.onnx", fallback="none")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    np.testing.assert_allclose(found, (3 * x + y).numpy(), rtol=1e-6)


def test_a_node_whose_kernel_is_cudas_only_says_so(library: Path, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return gallery.spread(x)

    oneop.export(Model().eval(), (torch.randn(2, 5),), tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    with pytest.raises(
        Exception, match=r"runs on the CPU here, and oneop's library of .* holds a kernel for CUDA only"
    ):
        onnxruntime.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
    # Without the library, the function in the file.
    onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
