"""With a sanitizer a finding names the line of the kernel's source, and what memory it was about."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from check_native.calls import case, failures, numbers, run
from check_native.probe import probe
from oneop.check.native import programs, rows, running, sanitizers
from oneop.errors import CallError
from oneop.kernels.inputs import INCLUDE

SOURCE = Path(__file__).with_name("probe.cpp")


def line(comment: str) -> str:
    """Where probe.cpp says so in a comment."""
    lines = SOURCE.read_text().splitlines()
    return f"probe.cpp:{next(number for number, text in enumerate(lines, 1) if text.endswith(f'// the {comment}'))}"


def finding(fault: str, sanitizer: str):
    cases = [case(probe, (numbers(size),), fault=fault) for size in (5, 3000)]
    (result,) = run(probe, cases, sanitizer).values()
    assert result.status == "failed"
    return result.finding


def test_a_read_of_one_element_too_many_is_found_at_its_line() -> None:
    found = finding("read after input", "address")
    assert found.summary == (
        f"native::probe: the kernel reads 4 bytes 0 bytes behind the end of input `x`, at {line('read')}"
    )
    assert found.details.startswith(f"{line('read')}: out[0] = T(out[0] + x[n]); // the read\nERROR: AddressSanitizer:")
    assert found.case.inputs[0].numel() == 5


def test_a_write_of_one_element_too_many_is_found_at_its_line() -> None:
    found = finding("write after output", "address")
    assert found.summary == (
        f"native::probe: the kernel writes 4 bytes 0 bytes behind the end of output `out`, at {line('write')}"
    )


def test_overflow_crash_and_leak_are_found_at_their_lines() -> None:
    overflow = finding("overflow", "address").summary
    assert overflow.startswith("native::probe: signed integer overflow: 5 + 2147483647 cannot be represented")
    assert overflow.endswith(f", at {line('overflow')}")
    assert line("crash") in finding("crash", "address").summary
    assert finding("leak", "address").summary.endswith(f", at {line('leak')}")


def test_a_race_in_parallel_for_is_found_at_its_line() -> None:
    found = finding("race", "thread")
    assert found.summary == f"native::probe: two threads meet without a lock (data race), at {line('race')}"
    assert "by thread T" in found.details


def test_callers_that_share_a_static_buffer_race() -> None:
    assert failures(run(probe, [case(probe, (numbers(50),), fault="static")], "thread")).keys() == {rows.RACES}


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_no_false_alarm(sanitizer: str) -> None:
    inputs = [numbers(5), numbers(0), numbers(3000, dtype=torch.bfloat16)]
    (result,) = run(probe, [case(probe, (x,)) for x in inputs], sanitizer).values()
    assert result.status == "passed"
    assert result.finding is None


RACE = f"""\
WARNING: ThreadSanitizer: data race (pid=7)
  Write of size 4 at 0x7b by thread T1:
    #0 operator() /home/a b/k.cpp:12 (libk.so+0x1)
    #1 call {INCLUDE}/oneop.hpp:414 (libk.so+0x2)
  Previous read of size 4 at 0x7b by main thread:
    #0 inner /home/a b/k.cpp:20 (libk.so+0x3)
    #1 outer /home/a b/k.cpp:30 (libk.so+0x3)
  Thread T1 (tid=8, running) created by main thread at:
    #0 pthread_create <null> (libtsan.so.2+0x5e686)
    #1 outer /home/a b/k.cpp:30 (libk.so+0x3)"""


def test_both_lines_of_a_race() -> None:
    (report,) = sanitizers.reports([{"event": "at", "case": 3, "phase": "threads"}, *RACE.splitlines()])
    assert (report.kind, report.message, report.case) == ("race", "data race", 3)
    assert report.accesses() == [("write", 4), ("read", 4)]
    source = Path("/home/a b/k.cpp")
    assert sanitizers.user_lines(report, [source]) == [f"{source}:12", f"{source}:20"]
    assert "pthread_create" in report.text([source])
    assert "oneop.hpp" not in report.text([source])


def test_a_race_of_somebody_else_has_no_line_of_ours() -> None:
    text = "WARNING: ThreadSanitizer: data race (pid=7)\n    #0 f /usr/include/c++/12/thread:1 (libk.so+0x1)"
    (report,) = sanitizers.reports(text.splitlines())
    assert sanitizers.user_lines(report, [Path("/home/k.cpp")]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="ThreadSanitizer asks for fixed addresses on Linux")
def test_where_random_addresses_are_in_the_way_they_are_switched_off(tmp_path: Path) -> None:
    program = tmp_path / "driver"
    program.write_text(
        "#!/bin/sh\nread flags < /proc/self/personality\n"
        'case "$flags" in *4????) exec "$DRIVER" "$@";; esac\n'
        'echo "FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2" >&2\nexit 66\n'
    )
    program.chmod(0o755)
    driver = programs.driver()
    allowed = subprocess.run([driver, "--fixed-addresses", "/bin/sh", "-c", ":"], capture_output=True, text=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIVER", str(driver))
        arguments = (program, driver, programs.kernels(probe), [case(probe, (numbers(3),))], "thread")
        if allowed.returncode == 0:
            log = running.run(*arguments)
            assert [*log.events("end")]
            assert not [*log.events("crash")]
        else:  # a container that forbids it
            with pytest.raises(CallError, match="this system does not let a program choose its addresses"):
                running.run(*arguments)
