"""The same kernels in other runtimes on the GPU: ONNX Runtime's CUDA provider, and TensorRT."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda_operators
import numpy as np
import pytest
import torch
from examples_of_cuda import scaled_linear
from torch import Tensor

import oneop

CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]

pytestmark = pytest.mark.usefixtures("real_gpu")


@pytest.fixture(scope="module")
def onnxruntime() -> Any:
    found = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime-gpu")
    if "CUDAExecutionProvider" not in found.get_available_providers():
        pytest.skip("this onnxruntime has no CUDA provider: pip install onnxruntime-gpu")
    return found


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 30))
        self.bias = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = scaled_linear(x, self.weight, self.bias, alpha=2.0, beta=-0.5)
        return cuda_operators.axpby(y, torch.relu(y), alpha=0.5, beta=2.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    return exported(tmp_path_factory.mktemp("model"))


def exported(folder: Path) -> tuple[Model, Path]:
    made, path = Model().eval(), folder / "model.onnx"
    batch = torch.export.Dim("batch")
    oneop.export(made, (torch.randn(3, 30),), path, dynamic_shapes={"x": {0: batch}})
    return made, path


def expected(model: Model, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model(x))


def test_onnxruntime_runs_every_node_on_the_gpu(onnxruntime: Any, model: tuple[Model, Path], tmp_path: Path) -> None:
    made, path = model
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = oneop.onnxruntime.session(path, sess_options=options, providers=CUDA)
    for rows in (1, 3, 1000):
        x = torch.randn(rows, 30)
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, expected(made, x), rtol=1e-4, atol=1e-4)
    profile = json.loads(Path(session.end_profiling()).read_text())
    ran = {
        event["args"]["op_name"]: event["args"]["provider"] for event in profile if "op_name" in event.get("args", {})
    }
    assert ran["ScaledLinear"] == "CUDAExecutionProvider"
    assert ran["Axpby"] == "CUDAExecutionProvider"


def test_onnxruntime_with_a_stream_of_the_callers(onnxruntime: Any, tmp_path: Path) -> None:
    class Where(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return cuda_operators.whereabouts(x)

    oneop.export(Where().eval(), (torch.ones(3),), tmp_path / "where.onnx")
    stream = torch.cuda.Stream()
    provider = ("CUDAExecutionProvider", {"user_compute_stream": str(stream.cuda_stream), "device_id": "0"})
    session = oneop.onnxruntime.session(tmp_path / "where.onnx", providers=[provider, "CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.ones(3, np.float32)})
    assert found.tolist() == [stream.cuda_stream, 0]


def test_onnxruntime_gives_scratch_memory_back(onnxruntime: Any, tmp_path: Path) -> None:
    class Spread(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return cuda_operators.spread(x)

    oneop.export(Spread().eval(), (torch.randn(50, 300),), tmp_path / "spread.onnx")
    session = oneop.onnxruntime.session(tmp_path / "spread.onnx", providers=CUDA)
    x = torch.randn(50, 300)
    session.run(None, {"x": x.numpy()})
    before = torch.cuda.mem_get_info()[0]
    for _ in range(2000):
        (found,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, x.var(1, unbiased=False).numpy(), rtol=1e-4, atol=1e-5)
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20


def test_onnxruntime_in_many_threads(onnxruntime: Any, model: tuple[Model, Path]) -> None:
    made, path = model
    session = oneop.onnxruntime.session(path, providers=CUDA)
    inputs = [torch.randn(64, 30) for _ in range(32)]
    wanted = [expected(made, x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: session.run(None, {"x": x.numpy()})[0], inputs))
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


def test_onnxruntime_reports_a_kernel_that_fails(onnxruntime: Any, tmp_path: Path) -> None:
    class Failing(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return cuda_operators.failing(x, how="launch")

    oneop.export(Failing().eval(), (torch.ones(3),), tmp_path / "failing.onnx")
    session = oneop.onnxruntime.session(tmp_path / "failing.onnx", providers=CUDA)
    with pytest.raises(Exception, match="gpu::failing: CUDA reports cudaErrorInvalidConfiguration"):
        session.run(None, {"x": np.ones(3, np.float32)})


def test_tensorrt_runs_the_plugin(model: tuple[Model, Path], tmp_path: Path) -> None:
    """As docs/tensorrt.md does it: the file without functions, the library with the plugins, an engine, a run."""
    trt = pytest.importorskip("tensorrt", reason="tensorrt is not installed: pip install tensorrt")
    made, _ = model
    path = tmp_path / "model.onnx"
    oneop.export(made, (torch.randn(3, 30),), path, fallback="none")
    logger = trt.Logger(trt.Logger.ERROR)
    trt.init_libnvinfer_plugins(logger, "")
    registry = trt.get_plugin_registry()
    for operator in (scaled_linear, cuda_operators.axpby):
        registry.load_library(str(oneop.build(operator, "tensorrt", tmp_path / operator.definition.base)))
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(path.read_bytes()), [str(parser.get_error(i)) for i in range(parser.num_errors)]
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert plan is not None
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    x = torch.randn(3, 30, device="cuda")
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    (output,) = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]
    (given,) = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    found = torch.empty(tuple(engine.get_tensor_shape(output)), device="cuda")
    context.set_tensor_address(given, x.data_ptr())
    context.set_tensor_address(output, found.data_ptr())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    assert context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()
    np.testing.assert_allclose(found.cpu().numpy(), expected(made, x.cpu()), rtol=1e-3, atol=1e-3)
