"""Operators in other processes: pickled, copied, in DataLoader workers and in processes that are spawned."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import oneop
from distributed import operators

HERE = Path(__file__).parent
X = torch.arange(12.0, dtype=torch.float64).reshape(2, 6) / 10


def run(code: str, *arguments: str, folder: Path | None = None) -> str:
    """What a fresh process says, which has imported nothing of this one."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_copies_hold_the_same_operator() -> None:
    model = operators.network()
    for other in (copy.copy(model[0]), copy.deepcopy(model)[0], pickle.loads(pickle.dumps(model))[0]):
        assert other.operator is operators.scaled_linear
        assert torch.equal(other(X), model[0](X))


def test_a_deep_copy_has_its_own_parameters() -> None:
    model = operators.network()
    other = copy.deepcopy(model)
    other(X).sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in other.parameters())


def test_gradient_operators_are_pickled_too() -> None:
    assert pickle.loads(pickle.dumps(operators.softmax_grad)) is operators.softmax_grad


def test_a_fresh_process_finds_an_operator_by_its_file(tmp_path: Path) -> None:
    """The process has not imported the definition file, and could not by name."""
    pickled = tmp_path / "operator.pickle"
    pickled.write_bytes(pickle.dumps([operators.scaled_linear, operators.softmax_grad, operators.gate]))
    code = """
import pickle, sys, torch
linear, softmax_grad, gate = pickle.loads(open(sys.argv[1], "rb").read())
print(linear, softmax_grad, gate, linear.gradient_operator)
x = torch.arange(12.0, dtype=torch.float64).reshape(2, 6) / 10
print(linear(x, x).sum().item(), gate(x).sum().item())
"""
    said = run(code, str(pickled), folder=tmp_path).splitlines()
    names = ("scaled_linear", "softmax_grad", "gate", "scaled_linear_grad")
    assert said[0] == " ".join(f"<oneop.Operator distributed::{name}>" for name in names)
    expected = operators.scaled_linear(X, X).sum().item(), operators.gate(X).sum().item()
    assert tuple(map(float, said[1].split())) == expected


def test_a_definition_file_loaded_by_path_is_found_again(tmp_path: Path) -> None:
    for name in ("kept", "lost"):
        (tmp_path / f"by_path_{name}.py").write_text(
            f"""
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("distributed_by_path::{name}")
def {name}(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return 2 * x
"""
        )
        (operator,) = oneop.registry.load_file(tmp_path / f"by_path_{name}.py")
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(operator))
    (tmp_path / "by_path_lost.py").unlink()
    code = """
import pickle, torch
print(pickle.loads(open("kept.pickle", "rb").read())(torch.ones(2)))
try:
    pickle.loads(open("lost.pickle", "rb").read())
except Exception as error:
    print(repr(error))
"""
    said = run(code, folder=tmp_path).splitlines()
    assert said[0] == "tensor([2., 2.])"
    assert "by_path_lost.py: there is no such file" in said[1]


def test_a_saved_module_is_loaded_again() -> None:
    model = operators.network()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X), model(X))


class Rows(Dataset[Any]):
    """Calls operators in a worker, with kernels and without, and backward through them."""

    def __init__(self) -> None:
        self.layer = operators.network()
        self.gate, self.softmax = operators.gate, operators.softmax

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        x = (X + index).requires_grad_()
        y = self.softmax(self.gate(x))
        (gradient,) = torch.autograd.grad(y.square().sum() + self.layer(x).sum(), x)
        return y.detach(), gradient, self.layer(x).detach()


def test_dataloader_workers_that_are_spawned() -> None:
    rows = Rows()
    loader = DataLoader(rows, batch_size=2, num_workers=1, multiprocessing_context="spawn", timeout=100)
    batches = list(loader)
    assert len(batches) == 2
    for position in range(3):
        found = torch.cat([batch[position] for batch in batches])
        wanted = torch.stack([rows[index][position] for index in range(4)])
        assert torch.equal(found, wanted)


def _in_a_process(rank: int, layer: torch.nn.Module, shared: Tensor) -> None:
    shared[rank] = layer(X).sum().detach()


def test_torch_multiprocessing_spawn() -> None:
    layer = operators.network()
    shared = torch.zeros(1, dtype=torch.float64).share_memory_()
    torch.multiprocessing.spawn(_in_a_process, (layer, shared), nprocs=1)
    assert shared.item() == layer(X).sum().item()


def test_workers_that_are_forked_after_a_call() -> None:
    """Linux's default: the runtime and its threads are there already."""
    rows = Rows()
    wanted = rows[3]
    loader = DataLoader(rows, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=100)
    for found, expected in zip(list(loader)[3], wanted, strict=True):
        assert torch.equal(found, expected)
