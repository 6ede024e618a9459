"""Makes what the tests of serving start from, in a process of its own: prepare.py FOLDER."""

import shlex
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def main(folder: Path) -> None:
    from serving.operators import Model, doubled, scaled

    import oneop
    from oneop.kernels.building import find_compiler

    oneop.build(HERE / "operators.py", "pytorch", folder)
    program(folder / "serve", find_compiler("c++").command)
    torch.manual_seed(0)
    model, x = Model(), torch.randn(6, 4)
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(model, (x,), dynamic_shapes=(rows,))
    torch.export.save(exported, folder / "model_exported.pt2")
    package(exported, folder / "model.pt2")
    other = torch.randn(5, 4)
    torch.save([other], folder / "inputs.pt")
    torch.save([torch.full((5, 4), float("nan"))], folder / "not_numbers.pt")
    torch.save([*model(other)], folder / "expected.pt")

    pair = [torch.randn(2, 3).double(), torch.randn(2, 3).double()]
    torch.save(pair, folder / "pair.pt")
    package(torch.export.export(Called(scaled), tuple(pair)), folder / "double.pt2")
    decomposed = torch.export.export(Called(doubled), (x,)).run_decompositions({doubled.torch_op: doubled.reference})
    torch.save([x], folder / "x.pt")
    package(decomposed, folder / "doubled.pt2")


class Called(torch.nn.Module):
    """An operator as a model."""

    def __init__(self, op) -> None:
        super().__init__()
        self.op = op

    def forward(self, *given):
        return self.op(*given)


def package(exported: torch.export.ExportedProgram, path: Path) -> None:
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))


def program(path: Path, compiler: tuple[str, ...]) -> None:
    """Links torch's C++ libraries from the wheel, and nothing of Python or of oneop."""
    root = Path(torch.__file__).parent
    headers = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
    # Packages from a CUDA build of torch look for libtorch too, so it is linked although the program itself needs none.
    linked = (*(["-Wl,--no-as-needed"] if sys.platform == "linux" else []), "-ltorch", "-ltorch_cpu", "-lc10")
    command = [
        *compiler,
        *("-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
        *(word for folder in headers for word in ("-isystem", folder)),
        *(HERE / "serve.cpp", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", *linked, "-ldl"),
        *("-o", path),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\n{made.stderr}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
