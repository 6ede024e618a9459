"""What a person sees of a compiler's output: real output of GCC 12, and Clang's in its own format."""

import signal
from pathlib import Path

import pytest

from oneop.kernels import diagnostics

PLACES = diagnostics.Places(glue=(Path("/cache/building/k-1.x"), Path("/oneop/include")), people=(Path("/home/u"),))

GCC_INSTANTIATION = """\
In file included from k.unit.cpp:3:
/home/u/k.cpp: In instantiation of 'void k(const k_args<T>&) [with T = float]':
k.unit.cpp:12:3:   required from here
/home/u/k.cpp:7:20: error: 'struct k_args<float>' has no member named 'z'
    7 |   return a.z;
      |          ~~^
"""

GCC_GLUE_FIRST = """\
k.unit.cpp: In function 'int run()':
k.unit.cpp:9:4: error: no matching function for call to 'k(int)'
    9 |   k(1);
      |   ~^~~
In file included from k.unit.cpp:3:
/home/u/k.cpp:5:6: note: candidate: 'void k()'
    5 | void k() {}
      |      ^
k.unit.cpp:9:4: note: here is the glue
    9 |   k(1);
In file included from k.unit.cpp:3:
/home/u/k.cpp:8:1: error: 'x' does not name a type
    8 | x y;
      | ^
/home/u/k.cpp:9:3: warning: unused
cc1plus: some warnings being treated as errors
"""

GCC_SYSTEM = """\
In file included from /usr/include/c++/12/algorithm:61,
                 from /home/u/k.cpp:1,
                 from k.unit.cpp:3:
/usr/include/c++/12/bits/stl_algo.h: In instantiation of 'void std::sort(_It, _It)':
/home/u/k.cpp:6:12:   required from here
/usr/include/c++/12/bits/stl_algo.h:1938:50: error: no match for 'operator-'
 1938 |   std::__lg(__last - __first);
"""

CLANG = """\
In file included from k.unit.cpp:3:
/home/u/k.cpp:7:12: error: no member named 'z' in 'k_args<float>'
  return a.z;
         ~ ^
k.unit.cpp:12:3: note: in instantiation of function template specialization 'k<float>' requested here
  k<float>(a);
  ^
/home/u/k.cpp:9:1: warning: something else
1 error generated.
"""


def report(output: str) -> list[str]:
    return diagnostics.compile_report(output, PLACES).splitlines()


def test_glue_disappears_from_an_instantiation() -> None:
    assert report(GCC_INSTANTIATION) == [
        "/home/u/k.cpp: In instantiation of 'void k(const k_args<T>&) [with T = float]':",
        "/home/u/k.cpp:7:20: error: 'struct k_args<float>' has no member named 'z'",
        "    7 |   return a.z;",
        "      |          ~~^",
    ]


def test_errors_in_glue_come_last_unless_they_lead_to_the_users_file() -> None:
    lines = report(GCC_GLUE_FIRST)
    assert lines[0] == "/home/u/k.cpp:5: this leads to"
    assert lines[1] == "k.unit.cpp:9:4: error: no matching function for call to 'k(int)'"
    assert "/home/u/k.cpp:8:1: error: 'x' does not name a type" in lines
    assert not any("warning" in line or "here is the glue" in line for line in lines)
    only_glue = GCC_GLUE_FIRST.replace("/home/u/k.cpp:5:6: note", "k.unit.cpp:5:6: note")
    assert report(only_glue)[0] == "/home/u/k.cpp:8:1: error: 'x' does not name a type"
    assert "k.unit.cpp:9:4: error: no matching function for call to 'k(int)'" in report(only_glue)


def test_an_error_within_the_standard_library_starts_with_the_users_line() -> None:
    lines = report(GCC_SYSTEM)
    assert lines[0] == "/home/u/k.cpp:6: this leads to"
    assert "/usr/include/c++/12/bits/stl_algo.h:1938:50: error: no match for 'operator-'" in lines
    assert not any("k.unit.cpp" in line for line in lines)


def test_clang() -> None:
    assert report(CLANG) == [
        "/home/u/k.cpp:7:12: error: no member named 'z' in 'k_args<float>'",
        "  return a.z;",
        "         ~ ^",
    ]


def test_headers_of_oneop_are_glue() -> None:
    assert diagnostics.compile_report(
        "/oneop/include/oneop.hpp:1:1: error: a\n/home/u/k.cpp:1:1: error: b\n", PLACES
    ) == ("/home/u/k.cpp:1:1: error: b\n/oneop/include/oneop.hpp:1:1: error: a")


def test_an_error_of_the_driver_is_shown() -> None:
    assert report("g++: error: unrecognized command-line option '-fnope'\n") == [
        "g++: error: unrecognized command-line option '-fnope'"
    ]
    assert report("something new\nand strange\n") == ["something new", "and strange"]


def test_at_most_40_lines() -> None:
    lines = report("".join(f"/home/u/k.cpp:{n}:1: error: {n}\n" for n in range(1, 101)))
    assert len(lines) == 40
    assert lines[38:] == ["/home/u/k.cpp:39:1: error: 39", "... and 61 lines more"]
    assert len(report("".join(f"/home/u/k.cpp:{n}:1: error: {n}\n" for n in range(1, 41)))) == 40


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (-9, "", signal.SIGKILL),
        (1, "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n", signal.SIGKILL),
        (1, "collect2: fatal error: ld terminated with signal 7 [Bus error]\n", 7),
        (1, "clang: error: unable to execute command: Killed\n", signal.SIGKILL),
        (1, "clang: error: unable to execute command: Killed: 9\n", signal.SIGKILL),
        (1, "g++: fatal error: Segmentation fault signal terminated program cc1plus\n", signal.SIGSEGV),
        (1, "/home/u/k.cpp:1:1: error: 'Killed' was not declared\n", None),
    ],
)
def test_killed_by(code: int, output: str, expected: int | None) -> None:
    assert diagnostics.killed_by(code, output) == expected


@pytest.mark.parametrize(
    "output",
    [
        "/usr/bin/ld: k.o: in function `f':\nk.cpp:(.text+0x5): undefined reference to `_Z7missingi'\n"
        "/usr/bin/ld: k.cpp:(.text+0x9): undefined reference to `_Z7missingi'\n",
        "/usr/bin/ld: k.cpp:(.text+0x5): undefined reference to `missing(int)'\n",
        "ld.lld: error: undefined symbol: missing(int)\n>>> referenced by k.cpp\n",
        'Undefined symbols for architecture arm64:\n  "missing(int)", referenced from:\n      _f in k.o\n',
    ],
)
def test_undefined_symbols(output: str) -> None:
    assert diagnostics.undefined_symbols(output) == ["missing(int)"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("/home/u/k.cpp:1:10: fatal error: faulty.h: No such file or directory\n    1 | #include\n", True),
        ("In file included from k.unit.cpp:3:\n/home/u/k.cpp:1:10: fatal error: 'faulty.h' file not found\n", True),
        ("/usr/include/a.h:1:10: fatal error: b.h: No such file or directory\n", False),
        ("k.unit.cpp:1:10: fatal error: /home/u/k.cpp: No such file or directory\n", False),
        ("/home/u/k.cpp:1:10: error: 'x' was not declared\n", False),
    ],
)
def test_misses_header(output: str, expected: bool) -> None:
    assert diagnostics.misses_header(output, PLACES) is expected


def test_disk_reason() -> None:
    output = "k.cpp: note\nk.cpp:9:1: fatal error: error writing to /c/ccX.s: No space left on device\n"
    assert diagnostics.disk_reason(output) == (
        "k.cpp:9:1: fatal error: error writing to /c/ccX.s: No space left on device"
    )
    assert diagnostics.disk_reason("k.cpp:1:1: error: no room\n") is None
