"""`oneop bench` as its user meets it: the table, the files, what is wrong and what is missing, and the exit status."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy
import pytest
import torch
from filelock import FileLock
from typer.testing import CliRunner, Result

from oneop.bench import calls, columns, machine, memory, showing
from oneop.bench.results import FORWARD, Row, Timing
from oneop.bench.timing import time_call
from oneop.cli import app
from oneop.targets.models import ModelRunner
from support.browser import OpenPage, browser, open_page  # noqa: F401

OPERATORS = Path(__file__).parent / "operators" / "operators.py"
QUICK = ("--seconds", "0.002", "--threads", "1", "--size", "n=64")


@pytest.fixture(autouse=True, scope="module")
def _quick_and_wide() -> Iterator[None]:
    """A short look at the machine will do: the figures are for nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        patch.setattr(machine, "SECONDS", 0.01)
        patch.setattr(machine, "ARRAY", 2**22)
        patch.setattr(machine, "PRODUCT", 256)
        yield


def bench(operator: str, *arguments: str) -> Result:
    place = f"{OPERATORS}:{operator}" if operator else str(OPERATORS)
    return CliRunner().invoke(app, ["bench", place, *arguments])


def figures(operator: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The JSON of one operator, whose run has to end with the status."""
    done = bench(operator, *QUICK, "--json", "-", *arguments)
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)["operators"][0]


def refused(operator: str, *arguments: str) -> str:
    """The message of a run that ends before anything is measured."""
    done = bench(operator, *arguments)
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    return done.stderr.removeprefix("oneop: ").strip()


class Run:
    """A run with all files, which several tests look at."""

    def __init__(self, folder: Path) -> None:
        self.page, self.plot, self.json, self.said = (folder / name for name in ("a.html", "a.png", "a.json", "a.txt"))

    def take_place(self) -> None:
        files = ("--html", str(self.page), "--plot", str(self.plot), "--json", str(self.json))
        targets = ("-t", "eager", "-t", "kernel", "-t", "onnxruntime", "--size", "n=4096", "--set", "alpha=0.25")
        done = bench("scaled_add", *QUICK, *targets, *files)
        assert done.exit_code == 0, done.output
        self.said.write_text(done.stdout, encoding="utf-8")

    @property
    def figures(self) -> dict[str, Any]:
        return json.loads(self.json.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Run:
    """Once for all workers of xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "bench"
    with FileLock(f"{folder}.lock"):
        found = Run(folder)
        if not found.said.exists():
            folder.mkdir()
            found.take_place()
    return found


def test_every_column_is_measured_in_its_passes(run: Run) -> None:
    (operator,) = run.figures["operators"]
    assert operator["attributes"] == {"alpha": 0.25}
    assert operator["dtypes"] == {"Float": "float32"}
    rows = {(row["column"], row["size"], row["pass"]) for row in operator["rows"] if row["status"] == "measured"}
    both = {(column, kind) for column in ("eager", "kernel") for kind in ("forward", "forward and backward")}
    both |= {("onnxruntime-function", "forward"), ("onnxruntime-native", "forward")}
    assert rows == {(column, size, kind) for column, kind in both for size in ("n=64", "n=4096")}


def test_the_compiled_reference_in_both_passes() -> None:
    rows = figures("scaled_add", "-t", "compiled")["rows"]
    assert [(row["pass"], row["status"]) for row in rows] == [
        ("forward", "measured"),
        ("forward and backward", "measured"),
    ]


def test_the_figures_of_a_row_belong_together(run: Run) -> None:
    (operator,) = run.figures["operators"]
    n = 4096
    for row in operator["rows"]:
        seconds = row["seconds"]
        assert 0 < seconds["low"] <= seconds["median"] <= seconds["high"] < 1
        assert seconds["runs"] >= 5
        if row["size"] != f"n={n}":
            continue
        forward = row["pass"] == "forward"
        # x, y and out; with backward also the gradient of out and those of x and y.
        assert row["bytes_per_second"] * seconds["median"] == pytest.approx(4 * n * (3 if forward else 6))
        # alpha * x + y; with backward also alpha * grad.
        assert row["flops_per_second"] * seconds["median"] == pytest.approx(n * (2 if forward else 3))
        assert row["uncounted"] == []
    (machine,) = run.figures["machines"]
    assert machine["threads"] == 1
    assert machine["bandwidth"] > 1e8
    assert machine["arithmetic"] > 1e8


def test_the_table_of_the_terminal(run: Run) -> None:
    said = run.said.read_text(encoding="utf-8")
    assert re.search(
        r"with 1 thread: memory \(triad\) [\d.]+ GB/s; a product of matrices in float32 [\d.]+ GFLOP/s", said
    )
    assert "bench::scaled_add, forward, 1 thread" in said
    assert "bench::scaled_add, forward and backward, 1 thread" in said
    unit = r"[\d.]+\s(?:ns|µs|ms)"
    assert re.search(rf"reference, eager +{unit} +{unit} +1\.00x +[\d.e-]+ +[\d.]+% +[\d.e-]+ +[\d.]+%", said)
    assert "Float: float32. alpha=0.25." in said


@pytest.mark.parametrize("width", [1280, 360], ids=["desk", "phone"])
def test_the_page(open_page: OpenPage, run: Run, width: int) -> None:  # noqa: F811
    seen = open_page(run.page, width=width)
    assert seen.console == []
    assert seen.requests == []
    assert seen.overflow == 0
    assert seen.colours() > 20
    headings = [heading.inner_text() for heading in seen.page.get_by_role("heading").all()]
    forward, backward = "bench::scaled_add, forward, 1 thread", "bench::scaled_add, forward and backward, 1 thread"
    plots = [f"Plot of {forward}", f"Plot of {backward}"]
    assert headings == ["bench::scaled_add: how fast", "What was measured", *plots, forward, backward]
    drawn = seen.page.locator("svg").first.text_content()
    assert drawn is not None
    assert "ONNX Runtime, native" in drawn
    assert "n=4096" in drawn
    assert seen.page.get_by_role("row").count() == (1 + 8) + (1 + 4)


def test_a_spread_that_says_the_machine_is_busy() -> None:
    timings = [Timing(1e-3, 1e-3 - spread / 2, 1e-3 + spread / 2, 9) for spread in (1e-4, 4e-4, 6e-4)]
    rows = [Row("eager", "reference, eager", "n=1", 1, FORWARD, "measured", timing) for timing in timings]
    (said,) = showing._unsteady(rows)
    assert said.startswith("In 1 of 3 rows the IQR is more than half of the median: other programs use this machine.")
    assert list(showing._unsteady(rows[:2])) == []


def test_the_plot(run: Run) -> None:
    pixels = matplotlib.image.imread(run.plot)
    assert pixels.shape[0] > 300
    assert pixels.std() > 0.05


def test_a_wrong_kernel_is_not_timed(tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    arguments = (*QUICK, "--no-backward", "-t", "eager", "-t", "kernel", "--set", "alpha=2")
    done = bench("forgetful", *arguments, "--html", str(page))
    assert done.exit_code == 1
    assert re.search(r"kernel in PyTorch +wrong +- +- +- +- +- +- *\n", done.stdout)
    complaint = (
        r"oneop: bench::forgetful: kernel in PyTorch, forward, at n=64 with 1 thread, is wrong: `out` differs from the"
        r" reference at 64 of 64 places; at \[\d+\] it is (\S+), and (\S+) is right to within \S+\n"
    )
    found = re.search(complaint, done.stderr)
    assert found
    assert float(found[2]) == pytest.approx(2 * float(found[1]), rel=1e-4)
    assert "is wrong: `out` differs" in page.read_text(encoding="utf-8")
    assert figures("forgetful", "--no-backward", "-t", "kernel", "--set", "alpha=1")["rows"][0]["status"] == "measured"


def test_a_wrong_gradient_is_not_timed() -> None:
    # Without kernels the operator itself is in no column of PyTorch's: it is put in the place of the kernel.
    kernel = next(column for column in columns.columns() if column.name == "kernel")
    rows = _rows_of("wrong_gradient", kernel)
    assert [(row.kind, row.status) for row in rows] == [("forward", "measured"), ("forward and backward", "wrong")]
    assert rows[1].reason.startswith("`gradient of x` differs from the reference at 64 of 64 places")


@pytest.mark.parametrize(
    ("operator", "kind", "said"),
    [
        ("lost_beta", "forward", r"`out` differs from the reference at 64 of 64 places; at \[\d+\] it is "),
        (
            "wrong_integers",
            "forward",
            r"`out` differs from the reference at 1 of 64 places; at \[7\] it is .* exactly$",
        ),
        (
            "half_gradient",
            "forward and backward",
            r"`gradient of x` differs from the reference at 64 of 64 places; at \[\d+\] it is ",
        ),
    ],
)
def test_kernels_that_are_wrong_in_one_thing(operator: str, kind: str, said: str) -> None:
    rows = figures(operator, "-t", "kernel", status=1)["rows"]
    found = {row["pass"]: row for row in rows}
    assert found[kind]["status"] == "wrong"
    assert found[kind]["seconds"] is None
    assert re.match(said, found[kind]["reason"])
    assert all(row["status"] == "measured" for row in rows if row["pass"] != kind and operator == "half_gradient")


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (
            "too_short",
            'the reference returned shape (64,) for output `out`; its definition "n+1" gives (65,). Correct the'
            " reference or the annotation.",
        ),
        (
            "narrow",
            "the reference returned int32 for output `out`; its definition Int64 gives int64. Correct the reference or"
            " the annotation.",
        ),
    ],
)
def test_a_reference_that_does_not_fit_its_definition(operator: str, said: str) -> None:
    (row,) = figures(operator, "-t", "eager", status=1)["rows"]
    assert (row["status"], row["reason"]) == ("failed", f"bench::{operator}: {said}")


def test_a_column_of_another_dtype_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(path: Path, operators: Any, threads: int | None) -> Any:
        return lambda arrays: [numpy.tanh(array.astype("float64")) for array in arrays.values()]

    runner = ModelRunner("wide", "Wide Runtime", False, "function", lambda: None, wide)
    monkeypatch.setattr(columns, "model_runners", lambda: (runner,))
    (row,) = figures("plain", "--no-backward", "-t", "wide", status=1)["rows"]
    assert (row["status"], row["reason"]) == ("wrong", "`out` is float64, and the reference's is float32")


def _rows_of(name: str, column: columns.Column) -> list[Any]:
    from oneop.bench import running
    from oneop.registry import load_file

    operator = next(item for item in load_file(OPERATORS) if item.definition.base == name)
    options = running.Options(given=[{"n": (64,)}], seconds=0.002)
    (plan,) = running._plans([operator], options)
    part = running._Operator(plan, [column], [1], options, running._Steps(None))
    part.columns = [column]
    return list(part.measure(running._points(plan, options)).rows)


def test_a_kernel_that_fails() -> None:
    (row,) = figures("failing", "--no-backward", "-t", "kernel", status=1)["rows"]
    assert row["status"] == "failed"
    assert row["reason"] == "bench::failing: out of luck"


def test_an_operator_without_a_reference_is_measured_against_its_kernel() -> None:
    found = figures("bare", "-t", "pytorch", "-t", "onnxruntime-native", "--no-backward")
    assert {row["column"]: row["status"] for row in found["rows"]} == {
        "kernel": "measured",
        "onnxruntime-native": "measured",
    }
    assert found["missing"]["eager"] == "the definition has native_only=True: there is no reference"
    assert (
        "native_only=True: there is no reference, so columns are compared with the kernel in PyTorch, and"
        in found["notes"][0]
    )
    assert all(row["flops_per_second"] is None for row in found["rows"])


def test_what_is_missing_is_a_row_and_asked_for_by_name_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_no_compiler", lambda: "there is no compiler")
    reason = "the operator has no kernels: it runs its reference"
    done = bench("plain", *QUICK, "--no-backward", "-t", "eager", "-t", "onnxruntime-native")
    assert done.exit_code == 1
    assert done.stderr.strip() == (
        "oneop: bench::plain: --target onnxruntime-native cannot be measured here. ONNX Runtime, native: " + reason
    )
    # Another column of the runtime is there; but this one could be, too.
    done = bench("plain", *QUICK, "--no-backward", "-t", "pytorch")
    assert done.exit_code == 1, done.output
    assert re.search(r"kernel in PyTorch +missing", done.stdout)
    assert f"kernel in PyTorch, every size: missing: {reason}" in done.stdout
    assert "reference, compiled, every size: missing: there is no compiler" in done.stdout
    assert done.stderr.strip() == (
        "oneop: bench::plain: --target pytorch can be measured only in part here. reference, compiled: there is no"
        " compiler"
    )
    # What the operator does not have is said, and is no failure.
    done = bench("plain", *QUICK, "--no-backward", "-t", "onnxruntime")
    assert done.exit_code == 0, done.output
    assert f"ONNX Runtime, native, every size: missing: {reason}" in done.stdout


def test_a_native_column_that_is_missing_alone_is_a_failure() -> None:
    done = bench("lost_beta", *QUICK, "--no-backward", "-t", "onnxruntime", "--dtype", "float64")
    assert done.exit_code == 1
    assert done.stderr.strip() == (
        "oneop: bench::lost_beta: --target onnxruntime can be measured only in part here. ONNX Runtime, native: there"
        " is no kernel for float64, only for float32: add dtypes=[...] to the definition"
    )


def test_a_runtime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> Any:
        raise AssertionError("it is not there")

    remedy = "Absent is not installed. Run `pip install absent`."
    runner = ModelRunner("absent", "Absent Runtime", False, "inline", lambda: remedy, opened)
    monkeypatch.setattr(columns, "model_runners", lambda: (runner,))
    monkeypatch.setattr(columns, "_no_compiler", lambda: "there is no compiler")
    found = figures("plain", "--no-backward")
    assert found["missing"] == {
        "compiled": "there is no compiler",
        "kernel": "the operator has no kernels: it runs its reference",
        "absent-inline": remedy,
    }
    done = bench("plain", *QUICK, "--target", "absent", "--no-backward")
    assert done.exit_code == 1
    assert f"--target absent cannot be measured here. Absent Runtime: {remedy}" in done.stderr


def test_without_the_optional_packages() -> None:
    """Nothing but torch: PyTorch's columns are there, and what the others need is said."""
    script = (
        "import sys\n"
        "for name in ('hypothesis', 'matplotlib', 'onnx', 'onnxruntime', 'openvino'):\n"
        "    sys.modules[name] = None\n"
        "from oneop.cli import main\n"
        "main()\n"
    )
    arguments = ("bench", f"{OPERATORS}:scaled_add", *QUICK, "--no-backward", "-t", "eager", "-t", "onnxruntime")
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    said = "ONNX Runtime is not installed. Run `pip install onnxruntime`."
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1]
        == "oneop: bench::scaled_add: --target onnxruntime cannot be measured here. ONNX Runtime, function body:"
        f" {said} ONNX Runtime, native: {said}"
    )
    assert "reference, eager" in done.stdout


def test_a_runtime_that_computes_in_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> Any:
        raise AssertionError("it is not asked")

    runner = ModelRunner("coarse", "Coarse Runtime", False, "inline", lambda: None, opened, {"float64": "float32"})
    monkeypatch.setattr(columns, "model_runners", lambda: (runner,))
    done = bench("plain", *QUICK, "--target", "coarse", "--dtype", "float64")
    assert done.exit_code == 1
    assert "Coarse Runtime: Coarse Runtime computes float64 in float32. Compare with --dtype float32." in done.stderr


def test_a_runtime_that_gives_wrong_numbers_and_one_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(path: Path, operators: Any, threads: int | None) -> Any:
        return lambda arrays: [array + 1 for array in arrays.values()]

    def breaks(path: Path, operators: Any, threads: int | None) -> Any:
        raise RuntimeError("no such thing\nat line 5")

    monkeypatch.setattr(
        columns,
        "model_runners",
        lambda: (
            ModelRunner("wrong", "Wrong Runtime", False, "function", lambda: None, wrong),
            ModelRunner("broken", "Broken Runtime", False, "function", lambda: None, breaks),
        ),
    )
    rows = figures("plain", "--no-backward", "-t", "wrong", "-t", "broken", status=1)["rows"]
    assert [(row["column"], row["status"]) for row in rows] == [
        ("wrong-function", "wrong"),
        ("broken-function", "failed"),
    ]
    assert rows[1]["reason"] == "RuntimeError: no such thing"


def test_values_are_within_the_constraints_of_the_examples() -> None:
    found = figures("pick", "-t", "eager")
    assert [row["status"] for row in found["rows"]] == ["measured", "measured"]


def test_a_reference_that_does_not_take_what_is_made_up() -> None:
    (row,) = figures("reserved", "-t", "eager", status=1)["rows"]
    assert row["status"] == "failed"
    assert (
        row["reason"]
        == "the reference fails on inputs made from the definition: ValueError: the first two rows are reserved. If"
        " values"
        ' have to be in a range, say so at the definition: @op.example(index="0 <= index < n").'
    )


def test_attributes_come_from_the_example_and_are_rounded_as_in_onnx() -> None:
    found = figures("windows", "-t", "eager")
    assert found["attributes"] == {"size": 2, "scale": 0.10000000149011612}
    assert found["notes"] == [
        "scale is 0.10000000149011612, not 0.1: ONNX keeps floating attributes in 32 bits, and every column gets the"
        " same."
    ]


def test_float64_is_not_wrong_for_the_attributes_of_onnx() -> None:
    found = figures("windows", "-t", "onnxruntime", "--dtype", "float64", "--no-backward")
    assert found["dtypes"] == {"Float": "float64"}
    assert [row["status"] for row in found["rows"]] == ["measured"]


def test_a_dtype_without_a_kernel() -> None:
    found = figures("scaled_add", "-t", "eager", "-t", "kernel", "--dtype", "bfloat16", "--without", "y", status=1)
    assert (
        found["missing"]["kernel"]
        == "there is no kernel for bfloat16, only for float32; float64: add dtypes=[...] to the definition"
    )
    assert found["absent"] == ["y"]


def test_leading_dimensions() -> None:
    found = figures("plain", "-t", "eager", "--size", "batch=2x3,n=5")
    assert {row["size"] for row in found["rows"]} == {"batch=256 n=64", "batch=2x3 n=5"}


@pytest.mark.parametrize(
    ("operator", "arguments", "said"),
    [
        (
            "scaled",
            (),
            (
                f"{OPERATORS}: no operator is called `scaled`. Choose one of bench::scaled_add, bench::forgetful,"
                " bench::lost_beta, bench::wrong_integers, bench::half_gradient, bench::too_short, bench::narrow,"
                " bench::wrong_gradient, bench::failing, bench::bare, bench::plain, bench::pick, bench::reserved,"
                " bench::windows, bench::stateless, bench::broken_example."
            ),
        ),
        (
            "scaled_add",
            ("--size", "q=3"),
            "bench::scaled_add: there is no dimension `q`. The dimensions are n. Write for example --size n=64.",
        ),
        (
            "scaled_add",
            ("--target", "tflite"),
            (
                "--target tflite is not known. Choose one or more of pytorch, eager, compiled, kernel, onnxruntime,"
                " onnxruntime-function, onnxruntime-native"
            ),
        ),
        (
            "scaled_add",
            ("--set", "gamma=1"),
            "bench::scaled_add: there is no attribute `gamma` to set. The attributes are alpha.",
        ),
        ("plain", ("--set", "a=1"), "bench::plain: there is no attribute `a` to set. There are no attributes; leave"),
        ("scaled_add", ("--set", "alpha"), "--set alpha: this is no attribute and value. Write for example --set"),
        (
            "scaled_add",
            ("--set", "alpha=big"),
            "bench::scaled_add: --set alpha=big does not read as float. Write for example --set alpha=0.5.",
        ),
        (
            "scaled_add",
            ("--set", "alpha=1", "--set", "alpha=2"),
            (
                "--set alpha=2: `alpha` is given twice, and was 1 before. Give it once; a list is one value, such as"
                " --set alpha=1,2."
            ),
        ),
        ("scaled_add", ("--without", "x"), "bench::scaled_add: `x` is no optional input. Those are y."),
        ("scaled_add", ("--dtype", "float8"), "--dtype float8 is not known. Choose one of float32, float64, "),
        (
            "scaled_add",
            ("--dtype", "int32"),
            "bench::scaled_add: no input can be int32. Choose a --dtype that its annotations admit: Float is float32,",
        ),
        (
            "stateless",
            (),
            "bench::stateless: attribute `scale` (float) has no default. Give it a value: --set scale=0.5.",
        ),
        (
            "broken_example",
            (),
            (
                "bench::broken_example: the example `of_a_file` raised FileNotFoundError: photo.png. Correct the"
                " example."
            ),
        ),
        ("scaled_add", ("--threads", "none"), "--threads none: write numbers from 1, such as --threads 1,4."),
        (
            "windows",
            ("--size", "n=4", "--set", "size=9"),
            (
                "bench::windows: output `out` would have size -4 in dimension 0 (n-size+1), with n = 4, size = 9. Pass"
                " inputs and attributes that give a size of 0 or more. (Here: other sizes with --size, or attributes"
                " with --set.)"
            ),
        ),
        ("scaled_add", ("--plot", "a.svg"), "--plot a.svg: the plot is a PNG file. Give a path that ends in .png."),
        (
            "scaled_add",
            ("--html", "nowhere/a.html"),
            "the page cannot be written to nowhere/a.html: there is no folder nowhere. Create it.",
        ),
    ],
)
def test_what_is_refused_before_anything_is_measured(operator: str, arguments: tuple[str, ...], said: str) -> None:
    assert refused(operator, *arguments).startswith(said)


def test_sizes_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "free_memory", lambda: 10**9)
    # x, y and out and their gradients, in 4 and in 8 bytes.
    assert (
        refused("scaled_add", "--size", "n=100000000")
        == "bench::scaled_add: n=100000000 needs about 7.2 GB (inputs, outputs and gradients, and all of them in"
        " float64"
        " to compare with), and this machine has 1 GB free. Give smaller sizes with --size."
    )


def test_what_a_runtime_says_when_memory_ends() -> None:
    from oneop.bench.running import _said

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert _said(caught.value) == "there is not enough memory. Give smaller sizes with --size."


def test_free_memory_is_known_here_and_bytes_read_well() -> None:
    free = memory.free_memory()
    assert free is None or 10**7 < free < 10**15
    assert [memory.shown(count) for count in (0, 999, 1000, 7.25e9)] == ["0 B", "999 B", "1 kB", "7.25 GB"]


def test_a_file_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import math\nx = math.sqroot(2)\n")
    done = CliRunner().invoke(app, ["bench", f"{tmp_path / 'bad.py'}:x"])
    assert done.exit_code == 1
    assert "bad.py does not import: AttributeError: module 'math' has no attribute 'sqroot'" in done.stderr


def test_values_of_every_kind_of_attribute_read_from_the_command_line() -> None:
    found = figures("stateless", "-t", "eager", "--set", "scale=2", "--set", "flags=[1, 2]")
    assert found["attributes"] == {"scale": 2.0, "flags": [1, 2]}


def test_the_clock_tells_a_slow_call_from_a_quick_one() -> None:
    import time

    slow = time_call(lambda: time.sleep(0.003), 1, 0.01)
    assert 0.003 <= slow.low <= slow.median <= slow.high < 1
    assert slow.runs >= 5
    assert time_call(lambda: None, 1, 0.01).median < 1e-3


def test_the_spread_is_between_the_quartiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        times = (9.0, 1.0, 3.0, 7.0, 5.0)
        number_per_run = 1

        def __init__(self, *arguments: Any, **options: Any) -> None: ...

        def blocked_autorange(self, min_run_time: float) -> "Clock":
            return self

    monkeypatch.setattr("oneop.bench.timing.Timer", Clock)
    assert time_call(lambda: None, 1, 0.01) == Timing(5.0, 3.0, 7.0, 5)


def test_a_reference_may_raise_what_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "raising.py"
    path.write_text(
        "from jaxtyping import Float\nfrom torch import Tensor\nimport oneop\n"
        '@oneop.op("bench::raising")\n'
        'def raising(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n'
        "    raise KeyError('boo')\n"
    )
    done = CliRunner().invoke(app, ["bench", str(path), *QUICK, "-t", "eager"])
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert "the reference fails on inputs made from the definition: KeyError: 'boo'" in done.stderr


def test_the_threads_of_torch_are_those_asked_for_and_then_those_before() -> None:
    from oneop.bench.running import _torch_threads

    before = torch.get_num_threads()
    with _torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
