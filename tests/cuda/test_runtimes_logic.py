"""What tests/gpu does with other runtimes, as far as it runs without a GPU: on ONNX Runtime's CPU provider."""

import onnxruntime
import pytest
import test_runtimes
import torch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> object:
    return test_runtimes.exported(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_runtimes, "CUDA", ["CPUExecutionProvider"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 30))


def test_many_threads(model: object) -> None:
    test_runtimes.test_onnxruntime_in_many_threads(onnxruntime, model)


def test_scratch_memory(tmp_path: object) -> None:
    test_runtimes.test_onnxruntime_gives_scratch_memory_back(onnxruntime, tmp_path)


def test_the_profile_is_read(model: object, tmp_path: object) -> None:
    """Up to the provider's name, which is another one here."""
    with pytest.raises((AssertionError, KeyError), match=r"CPUExecutionProvider|ScaledLinear"):
        test_runtimes.test_onnxruntime_runs_every_node_on_the_gpu(onnxruntime, model, tmp_path)
