"""The driver finds each fault of the probe in the row that is there for it, and none in correct kernels."""

from pathlib import Path

import pytest
import torch

from check_native.calls import case, failures, numbers, run
from check_native.probe import pairs, probe
from gallery.gallery import EXAMPLES
from oneop.check.native import programs, rows
from oneop.errors import BuildError, CallError, DefinitionError
from oneop.testing import CheckFailedError, assert_property

SIZES = (5, 1, 3000)
PLAIN = [numbers(5), numbers(1), numbers(3000, dtype=torch.bfloat16)]
EMPTY = numbers(0)


def found(fault: str, *more: torch.Tensor, **options: float) -> dict[str, str]:
    return failures(run(probe, [case(probe, (x,), fault=fault) for x in (*PLAIN, *more)], **options))


def test_a_correct_kernel_passes_every_row() -> None:
    results = run(probe, [case(probe, (x,)) for x in (*PLAIN, EMPTY)])
    assert list(results) == list(rows.ROWS)
    assert {result.status for result in results.values()} == {"passed"}
    assert {result.column for result in results.values()} == {rows.COLUMN}
    assert results[rows.VALUES].examples > 4  # those of the gradient, too


@pytest.mark.parametrize(
    ("fault", "row", "summary"),
    [
        ("write after output", rows.STRAY, "the kernel writes 4 bytes outside output `out`, 0 elements behind the end"),
        ("write before output", rows.STRAY, "the kernel writes 4 bytes outside output `out`, 1 elements before the"),
        (
            "write after scratch",
            rows.STRAY,
            "the kernel writes 4 bytes outside scratch block 1, 0 bytes behind the end",
        ),
        ("change input", rows.INPUTS, "the kernel changes element 0 of input `x`"),
        ("not written", rows.UNINITIALISED, "the result depends on what the output's memory held before: element 0 of"),
        ("scratch not set", rows.UNINITIALISED, "the result depends on what scratch memory held before: element 0 of"),
        (
            "read after input",
            rows.UNINITIALISED,
            "the result depends on memory around the inputs, which belongs to nobody",
        ),
        ("random", rows.DETERMINISM, "the result differs when it is called again: element 0 of output `out` is"),
        ("carry", rows.THREADS, "the result differs in several threads (pieces in another order): element 0 of output"),
        ("static", rows.CALLERS, "the result differs when 8 threads call at once: element"),
        ("leak", rows.MEMORY, "memory grows by"),
        ("files", rows.MEMORY, "files are left open after"),
        ("misaligned", rows.CRASHES, "the kernel crashes (SIGABRT), when inputs lie at an address that only their"),
        ("crash when large", rows.CRASHES, "the kernel crashes (SIGABRT)"),
        ("exit", rows.CRASHES, "the kernel ends the process with status 3"),
        ("fail", rows.VALUES, 'the kernel fails where the reference does not: native::probe: not with "these" numbers'),
        ("gradient writes after output", rows.STRAY, "the kernel writes 4 bytes outside output `grad_x`, 0 elements"),
    ],
)
def test_a_fault_fails_its_row(fault: str, row: str, summary: str) -> None:
    summaries = found(fault)
    name = "native::probe_grad" if fault.startswith("gradient") else "native::probe"
    assert summaries[row].startswith(f"{name}: ")
    assert summary in summaries[row]


def test_memory_from_malloc_is_not_initialised() -> None:
    summaries = found("malloc not set")
    if "uninitialised memory" not in summaries:  # a C library that cannot fill memory
        assert not hasattr(__import__("ctypes").CDLL(None), "mallopt")
    else:
        assert "what malloc or the stack held before" in summaries[rows.UNINITIALISED]


def test_a_kernel_that_writes_to_an_empty_tensor_crashes_in_that_case_alone() -> None:
    results = run(probe, [case(probe, (x,), fault="write before output") for x in (*PLAIN, EMPTY)])
    crash = results[rows.CRASHES].finding
    assert crash is not None
    assert crash.summary == "native::probe: the kernel crashes (SIGSEGV); `x` is empty and without memory"
    assert crash.case is not None
    assert crash.case.inputs[0].numel() == 0
    assert results[rows.STRAY].status == "failed"  # the other calls were made
    assert results[rows.STRAY].reason is None


def test_after_three_crashes_the_rest_is_not_called() -> None:
    results = run(probe, [case(probe, (numbers(20, seed=seed),), fault="crash when large") for seed in range(6)])
    assert results[rows.STRAY].reason is not None
    assert results[rows.STRAY].reason.endswith("calls were not made after three crashes")


def test_a_kernel_that_hangs_is_ended() -> None:
    summaries = found("hang", seconds=0.5)
    assert summaries[rows.CRASHES] == "native::probe: the kernel does not return within 0.5 s"


def test_a_kernel_that_hangs_is_not_explained_as_a_crash() -> None:
    results = run(probe, [case(probe, (x,), fault="hang") for x in PLAIN], seconds=0.5)
    finding = results[rows.CRASHES].finding
    assert finding is not None
    assert finding.pattern == "A loop whose end is never reached, or threads that wait for each other."
    assert results[rows.STRAY].reason is not None
    assert results[rows.STRAY].reason.endswith("calls were not made after one that did not return")


def test_the_smallest_call_is_shown_and_the_others_are_named() -> None:
    finding = run(probe, [case(probe, (x,), fault="write after output") for x in PLAIN])[rows.STRAY].finding
    assert finding is not None
    assert finding.case is not None
    assert finding.case.inputs[0].numel() == 1
    assert finding.details is not None
    assert "Also seen:\n- native::probe: the kernel writes 2 bytes outside output `out`" in finding.details
    assert finding.pattern == rows.PATTERNS[rows.STRAY]


@pytest.mark.parametrize("fault", ["write after output", "gradient writes after output"])
def test_the_snippet_shows_the_fault_again(fault: str) -> None:
    finding = run(probe, [case(probe, (numbers(3),), fault=fault)])[rows.STRAY].finding
    assert finding is not None
    assert finding.snippet is not None
    with pytest.raises(CheckFailedError, match=r"stray writes, kernel outside Python: .*the kernel writes 4 bytes"):
        exec(finding.snippet, {})


def test_a_row_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"there is no row 'speed' outside Python\. Choose among 'crashes', 'values'"
    ):
        assert_property(probe, "speed", [numbers(3)], column=rows.COLUMN)
    with pytest.raises(CallError, match="cannot be asked outside Python: there is no kernel in C or C"):
        assert_property(probe, rows.STRAY, [numbers(3).double()], column=rows.COLUMN)
    assert_property(probe, rows.STRAY, [numbers(3)], column=rows.COLUMN)
    assert_property(probe, rows.ADDRESS, [numbers(3)], column=rows.COLUMN)


def test_strides_reach_kernels_that_ask_for_them() -> None:
    x = numbers(6, 5).T[:, ::2]
    assert failures(run(pairs, [case(pairs, (x,)), case(pairs, (numbers(3, 1).expand(3, 4),))])) == {}
    wrong = failures(run(pairs, [case(pairs, (x,), fault="contiguous")]))
    assert rows.VALUES in wrong
    assert rows.UNINITIALISED in wrong  # what lies between the elements belongs to somebody else


def test_no_false_alarm_in_the_gallery() -> None:
    for example in EXAMPLES:
        if example.op.has_kernels:
            results = run(example.op, [case(example.op, example.inputs(), **example.attributes)])
            assert failures(results) == {}
            assert {result.status for result in results.values()} == {"passed"}


def test_an_operator_without_kernels_is_skipped() -> None:
    example = next(item for item in EXAMPLES if not item.op.has_kernels)
    results = run(example.op, [case(example.op, example.inputs(), **example.attributes)])
    assert {(result.status, result.reason) for result in results.values()} == {
        ("skipped", "there is no kernel in C or C++ for these calls")
    }


def test_a_kernel_that_does_not_compile_fails(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import oneop\nfrom jaxtyping import Float\nfrom torch import Tensor\n\n"
        '@oneop.op("native::broken", kernels=["broken.cpp"], dtypes=["float32"])\n'
        'def broken(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return x + 1\n'
    )
    (tmp_path / "broken.cpp").write_text('#include "broken.h"\nnot C++\n')
    from oneop import registry

    (operator,) = registry.load_file(tmp_path / "broken.py")
    results = run(operator, [case(operator, (numbers(3),))])
    assert failures(results)[rows.CRASHES].startswith("native::broken: cannot build the kernels of broken.cpp")
    assert results[rows.VALUES].reason == "the kernels could not be built"


def test_a_damaged_file_of_cases_is_refused(tmp_path: Path) -> None:
    import subprocess

    for content, message in (
        (b"", "damaged"),
        (b"something", "no file of cases"),
        (b"oneopcs1" + b"\xff" * 8, "damaged"),
    ):
        (tmp_path / "cases").write_bytes(content)
        command = [programs.driver(), programs.kernels(probe), tmp_path / "cases", tmp_path / "outputs", "1", "0"]
        answer = subprocess.run(command, capture_output=True, text=True)
        assert answer.returncode == 2
        assert message in answer.stderr


@pytest.mark.parametrize(
    "refusal", ["unrecognized command-line option '-fsanitize=address,undefined'", "cannot find -lasan"]
)
def test_a_compiler_without_sanitizers_is_a_failure_that_says_what_to_install(
    refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "plain-cc"
    compiler.write_text(
        "#!/bin/sh\n"
        f'for word in "$@"; do case "$word" in -fsanitize*) echo "error: {refusal}" >&2; exit 1;; esac; done\n'
        'exec cc "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(BuildError, match="This compiler has no AddressSanitizer and UndefinedBehaviorSanitizer"):
        programs.driver("address")
    result = run(probe, [case(probe, (numbers(3),))], "address")[rows.ADDRESS]
    assert result.status == "failed"
    assert result.finding is not None
    assert "apt-get install gcc" in (result.finding.details or "")
