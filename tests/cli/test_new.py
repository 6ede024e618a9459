"""oneop new: what it writes passes its own test as it is, in each language, and it refuses what it should."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneop.cli import app
from oneop.kernels.building import build
from oneop.kernels.compilers import has_cuda_compiler
from oneop.kernels.library import kernel_library
from oneop.registry import load_file


def new(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["new", *map(str, arguments)])
    return done.exit_code, done.output


def run_its_test(folder: Path, name: str = "wider") -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", f"test_{name}.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("language", "files"),
    [
        ("python", {"wider.py", "test_wider.py"}),
        ("c++", {"wider.py", "test_wider.py", "wider.cpp"}),
        ("c", {"wider.py", "test_wider.py", "wider.c"}),
    ],
)
def test_what_it_writes_passes_as_it_is(language: str, files: set[str], tmp_path: Path) -> None:
    status, said = new("wider", "--language", language, "--directory", tmp_path / "made")
    assert status == 0, said
    assert {path.name for path in (tmp_path / "made").iterdir()} == files
    status, said = run_its_test(tmp_path / "made")
    assert status == 0, said
    assert " passed" in said
    assert " skipped" not in said


@pytest.mark.parametrize("language", ["python", "c++", "c"])
def test_with_a_kernel_for_gpus(language: str, tmp_path: Path) -> None:
    status, said = new("wider", "--language", language, "--cuda", "--directory", tmp_path)
    assert status == 0, said
    assert (tmp_path / "wider.cu").exists()
    assert '"wider.cu"]' in (tmp_path / "wider.py").read_text()
    status, said = run_its_test(tmp_path)
    assert status == 0, said
    assert " passed" in said


@pytest.mark.skipif(not has_cuda_compiler(), reason="there is no nvcc")
def test_nvcc_takes_the_kernel_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEOP_CUDA_ARCHITECTURES", "80")
    new("wider", "--cuda", "--directory", tmp_path)
    (operator,) = load_file(tmp_path / "wider.py")
    assert build(kernel_library([operator.kernel_spec("cuda")])).exists()


@pytest.mark.parametrize(
    ("name", "language"), [("alpha", "c"), ("a", "c++"), ("n", "c++"), ("i", "c"), ("out", "python"), ("y", "python")]
)
def test_names_that_its_files_use_where_they_do_no_harm(name: str, language: str, tmp_path: Path) -> None:
    status, said = new(name, "--language", language, "--directory", tmp_path)
    assert status == 0, said
    status, said = run_its_test(tmp_path, name)
    assert status == 0, said


def test_its_test_can_fail(tmp_path: Path) -> None:
    """The kernel computes something else, and the generated test notices."""
    new("wider", "--directory", tmp_path)
    kernel = tmp_path / "wider.cpp"
    wrong = kernel.read_text().replace("alpha *", "2 + alpha *")
    assert wrong != kernel.read_text()
    kernel.write_text(wrong)
    status, said = run_its_test(tmp_path)
    assert status == 1
    assert "FAILED test_wider.py::test_it_equals_the_reference" in said


def test_it_is_formatted_and_linted(tmp_path: Path) -> None:
    for language in ("c++", "python"):
        new(f"in_{language[0]}", "--language", language, "--directory", tmp_path)
    tools = Path(sys.executable).parent
    for arguments in (["check", "--select", "E,F,I,W,UP", "--ignore", "F722,F821"], ["format", "--check"]):
        command = [tools / "ruff", *arguments, "--isolated", "--line-length", "120", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("precious")
    status, said = new("mine", "--directory", tmp_path)
    assert status == 1
    assert f"nothing was written, since {tmp_path}/test_mine.py exists already" in said
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "precious"
    (tmp_path / "mine.py").write_text("precious too")
    _, said = new("mine", "--directory", tmp_path)
    assert f"nothing was written, since {tmp_path}/mine.py, {tmp_path}/test_mine.py exist already" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ScaledAdd"], "NAME is `ScaledAdd`, which is no name for an operator. Use lower-case words"),
        (["../up"], "NAME is `../up`, which is no name for an operator."),
        (["double"], "NAME is `double`, which is a word of C, C++ or Python. Choose another one, such as my_double."),
        (
            ["torch"],
            "NAME is `torch`, and a module of that name can be imported here: torch.py would be confused with it. "
            "Choose another one, such as my_torch.",
        ),
        (["oneop"], "NAME is `oneop`, and a module of that name"),
        (["pytest"], "NAME is `pytest`, and a module of that name"),
        (["json"], "NAME is `json`, and a module of that name"),
        (["sys"], "NAME is `sys`, and a module of that name"),
        (["sum"], "NAME is `sum`, a name that Python has a function of. Choose another one, such as my_sum."),
        *[
            ([name], f"NAME is `{name}`, a name that the files use for something else. Choose another one, such as my_")
            for name in ("x", "bias", "shape", "dtype", "with_bias", "exported", "ctx")
        ],
        (["lambda"], "NAME is `lambda`, which is a word of C, C++ or Python."),
        (["fine", "--namespace", "aten"], "--namespace aten belongs to PyTorch. Choose another one."),
    ],
)
def test_names_that_would_not_work(arguments: list[str], message: str, tmp_path: Path) -> None:
    status, said = new(*arguments, "--directory", tmp_path)
    assert status == 1
    assert message in said
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, said = new("fine", "--directory", tmp_path / "file" / "below")
    assert status == 1
    assert "cannot be written: Not a directory. Choose another --directory." in said
