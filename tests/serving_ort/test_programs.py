"""The same file outside Python: a C++ program with the native library, and Node.js with the function in the file."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from serving_ort import cases
from serving_ort.cases import Served

from oneop.kernels.building import find_compiler

EXAMPLES = cases.ROOT / "examples" / "serving"
NUMBERS = "\n".join(" ".join(map(str, row)) for row in cases.X.tolist())


def numbers(text: str) -> np.ndarray:
    return np.array([[float(word) for word in line.split()] for line in text.splitlines()])


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled as docs/serving.md says, against the shared library in the wheel."""
    folder = tmp_path_factory.mktemp("program")
    (shared,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.*[0-9]*")
    # The wheel has the file under its full name alone; programs ask for libonnxruntime.so.1.
    link = "libonnxruntime.so.1" if shared.name.startswith("libonnxruntime.so") else shared.name
    (folder / link).symlink_to(shared)
    compiler = find_compiler("c++")
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    sources = [f"-I{EXAMPLES / 'include'}", EXAMPLES / "serve.cpp", folder / link]
    subprocess.run(
        [*compiler.command, "-std=c++17", "-O1", *warnings, *sources, f"-Wl,-rpath,{folder}", "-o", folder / "serve"],
        check=True,
    )
    return folder / "serve"


def serve(*command: object, text: str = NUMBERS, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_program_in_cpp(program: Path, served: Served) -> None:
    native = serve(program, served.path, served.library)
    function = serve(program, served.path)
    for done in (native, function):
        assert (done.returncode, done.stderr) == (0, "")
        np.testing.assert_allclose(numbers(done.stdout), served.expected, rtol=1e-5, atol=1e-6)


def test_the_program_runs_the_kernel_where_it_has_one(program: Path, served: Served, tmp_path: Path) -> None:
    """Without the function, only the library can give the numbers."""
    from oneop.inspection.rewriting import strip

    strip(served.path, tmp_path / "bare.onnx")
    native, nothing = serve(program, tmp_path / "bare.onnx", served.library), serve(program, tmp_path / "bare.onnx")
    np.testing.assert_allclose(numbers(native.stdout), served.expected, rtol=1e-5, atol=1e-6)
    assert nothing.returncode == 1
    assert "ScaledLinear" in nothing.stderr


def test_the_program_needs_no_python(program: Path, served: Served) -> None:
    if shutil.which("ldd") is None:
        pytest.skip("ldd reads ELF files")
    for file in (program, served.library):
        linked = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        assert "python" not in "\n".join(line.split("=>")[0] for line in linked.splitlines())


def test_what_the_program_says_of_mistakes(program: Path, served: Served) -> None:
    for arguments, text, said in (
        ([served.path, "nowhere.so"], NUMBERS, "serve: Failed to load library nowhere.so"),
        (["nowhere.onnx"], NUMBERS, "serve: Load model from nowhere.onnx failed"),
        ([served.path], "1 2 three", "serve: line 1 is not a row of numbers as long as the first"),
        ([served.path], "1 2\n3", "serve: line 2 is not a row of numbers as long as the first"),
        ([served.path, served.library], "1 2", "serve: "),
    ):
        done = serve(program, *arguments, text=text)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(said)
    assert serve(program).returncode == 2


def test_node(node_modules: Path, served: Served) -> None:
    done = serve("node", EXAMPLES / "serve.js", served.path, NODE_PATH=str(node_modules))
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_allclose(numbers(done.stdout), served.expected, rtol=1e-5, atol=1e-6)
    done = serve("node", EXAMPLES / "serve.js", "nowhere.onnx", NODE_PATH=str(node_modules))
    assert done.returncode == 1
    assert done.stderr.startswith("serve: ")


def test_the_packages_have_what_a_cpu_needs(node_modules: Path) -> None:
    """Nothing is fetched besides the packages: their scripts are not run."""
    import platform
    import sys

    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]
    binaries = node_modules / "onnxruntime-node" / "bin"
    names = {path.name for path in binaries.glob(f"*/{sys.platform}/{machine}/*")}
    assert "onnxruntime_binding.node" in names
    assert not any("cuda" in name.lower() for name in names)
    assert (node_modules / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm").is_file()
    lock = (cases.ROOT / "tests" / "web" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
