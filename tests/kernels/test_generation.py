"""Generated headers as they are read; libraries: what they hold and export; what is said where a kernel is missing."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float, Int, Shaped
from kernels.contract_host import SANITIZE, host_of
from kernels.contract_operators import DEFINITIONS, specs
from torch import Tensor

from oneop.definition.dtypes import BY_NAME
from oneop.definition.gradient import gradient_definition
from oneop.definition.signature import definition_of
from oneop.errors import BuildError, DefinitionError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.generate import header_name, header_text
from oneop.kernels.inputs import INCLUDE
from oneop.kernels.library import explain, kernel_library, write_headers
from oneop.kernels.literals import c_string
from oneop.kernels.spec import KernelOptions, KernelSpec

GOLDEN = Path(__file__).with_name("golden")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")


def scaled_linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    """alpha * x @ weight.T + beta * bias"""


def scaled_linear_grad(grad, x, weight, bias, *, alpha, beta):
    """The gradients of x, weight and bias."""


LINEAR = definition_of(scaled_linear, "demo::scaled_linear")
GRADIENT = gradient_definition(LINEAR, scaled_linear_grad)


def linear_spec(path: Path, *dtypes: str) -> KernelSpec:
    chosen = tuple(BY_NAME[name] for name in dtypes) or None
    return KernelSpec(LINEAR, (path,), KernelOptions(dtypes=chosen))


# ---- headers


@pytest.mark.parametrize("suffix", [".cpp", ".c"])
@pytest.mark.parametrize("definition", [LINEAR, GRADIENT], ids=lambda item: item.base)
def test_golden_headers(definition, suffix: str) -> None:
    """ONEOP_UPDATE_GOLDEN=1 writes the files again."""
    text = header_text(KernelSpec(definition, (Path(f"/kernels/{definition.base}{suffix}"),)))
    golden = GOLDEN / f"{definition.base}{suffix}.h"
    if os.environ.get("ONEOP_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_golden_contract_headers() -> None:
    """Every kind of attribute, variadic and strided inputs, unknown sizes, several dtypes."""
    for suffix in (".cpp", ".c"):
        chosen = [
            spec
            for spec in specs(suffix)
            if spec.definition.base in ("show", "total_grad", "find", "gather", "transpose")
        ]
        text = "\n".join(header_text(spec) for spec in chosen)
        golden = GOLDEN / f"contract{suffix}.h"
        if os.environ.get("ONEOP_UPDATE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text()


@pytest.mark.parametrize("suffix", [".cpp", ".c"])
def test_each_header_stands_alone(suffix: str, tmp_path: Path) -> None:
    write_headers(specs(suffix), tmp_path)
    for language, compiler in {".c": [("c", "gcc")], ".cpp": [("c++", "g++")]}[suffix]:
        for spec in specs(suffix):
            source = tmp_path / f"alone.{language}"
            source.write_text(f'#include "{header_name(spec.definition)}"\n' * 2)
            compile_alone(compiler, language, source)


def test_a_header_for_c_is_also_good_in_cpp(tmp_path: Path) -> None:
    write_headers(specs(".c"), tmp_path)
    source = tmp_path / "alone.cpp"
    source.write_text("".join(f'#include "{header_name(spec.definition)}"\n' for spec in specs(".c")))
    compile_alone("g++", "c++", source)


def test_a_header_for_both_languages(tmp_path: Path) -> None:
    spec = KernelSpec(LINEAR, (Path("/kernels/a.cpp"), Path("/kernels/b.c")))
    write_headers([spec], tmp_path)
    for language, compiler in (("c", "gcc"), ("c++", "g++")):
        source = tmp_path / f"alone.{language}"
        source.write_text('#include "scaled_linear.h"\n')
        compile_alone(compiler, language, source)


def compile_alone(compiler: str, language: str, source: Path) -> None:
    standard = {"c": "-std=c11", "c++": "-std=c++17"}[language]
    command = [compiler, "-x", language, standard, *STRICT, f"-I{INCLUDE}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_layout_that_the_abi_states() -> None:
    text = '#include "oneop.h"\nONEOP_ASSERT_LAYOUT;\nint unused;\n'
    wrong = text.replace(
        "ONEOP_ASSERT_LAYOUT", 'ONEOP_ASSERT_LAYOUT;\nONEOP_STATIC_ASSERT(sizeof(oneop_tensor) == 47, "")'
    )
    for language in ("c", "c++"):
        build(Library("layout", "layout", (Unit("layout", language, text),), include_dirs=(INCLUDE,), flags=STRICT))
        with pytest.raises(BuildError, match="static"):
            build(Library("layout", "layout", (Unit("layout", language, wrong),), include_dirs=(INCLUDE,)))


def test_the_layout_that_the_host_of_the_tests_uses() -> None:
    import ctypes

    from kernels import ctypes_host as host

    sizes = {"Tensor": 48, "Argument": 16, "Attribute": 24, "Context": 40, "Call": 40, "Kernel": 24, "Operator": 56}
    assert {name: ctypes.sizeof(getattr(host, name)) for name in sizes} == sizes


def test_a_doc_string_cannot_leave_its_comment() -> None:
    def kernel(x: Float[Tensor, "n"], *, text: str = "*/ \\", more: str = '\n"??/') -> Float[Tensor, "n*2"]:
        """a */ int x; /* b \\

        last \\
        """

    text = header_text(KernelSpec(definition_of(kernel, "demo::kernel"), (Path("/k.c"),)))
    assert "a * / int x; / * b" in text
    assert text.count("*/") == len(re.findall(r"/\*", text))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_c_strings_say_what_they_hold(text: str) -> None:
    literal = c_string(text)
    assert re.fullmatch(r'"[ -~]*"', literal)
    plain = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), literal[1:-1])
    assert plain.encode("latin-1").decode() == text


def test_headers_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    written = write_headers([linear_spec(tmp_path / "a.cpp")], tmp_path / "new")
    assert written == [tmp_path / "new" / "scaled_linear.h"]
    assert written[0].read_text() == header_text(linear_spec(tmp_path / "a.cpp"))


# ---- dtypes


def test_float16_has_to_be_asked_for() -> None:
    assert [item[0].name for item in linear_spec(Path("/a.cpp")).combinations()] == ["float32", "float64"]
    assert [item[0].name for item in linear_spec(Path("/a.cpp"), "float16").combinations()] == ["float16"]


def test_combinations_of_two_variables() -> None:
    def mixed(x: Float[Tensor, "n"], i: Int[Tensor, "n"], s: Shaped[Tensor, "n"]) -> Float[Tensor, "n"]: ...

    definition = definition_of(mixed, "demo::mixed")
    options = KernelOptions(dtypes=(BY_NAME["float32"], BY_NAME["int32"], BY_NAME["int64"]))
    found = KernelSpec(definition, (Path("/a.cpp"),), options).combinations()
    assert len(found) == 1 * 2 * 3
    with pytest.raises(DefinitionError) as caught:
        KernelSpec(definition, (Path("/a.cpp"),), KernelOptions(dtypes=(BY_NAME["float32"],))).combinations()
    assert (
        str(caught.value) == "demo::mixed: dtypes=['float32'] holds no dtype of `Int`. "
        "Add one or more of ['int8', 'int16', 'int32', 'int64']."
    )


@pytest.mark.parametrize("suffix", [".rs", ""])
def test_a_source_of_no_known_language(suffix: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        kernel_library([linear_spec(Path(f"/kernel{suffix}"))])
    assert (
        str(caught.value)
        == f"demo::scaled_linear: the kernel source kernel{suffix} has no compiler here: `{suffix}` is"
        " not a known suffix. Name a C file (.c), a C++ file (.cpp, .cc, .cxx) or a CUDA file (.cu)."
    )


# ---- libraries


GOOD = """#include "scaled_linear.h"
template <class T> void scaled_linear(const scaled_linear_args<T> &a, oneop::Context &) {
  for (T &value : a.out) value = 1;
}
"""
GOOD_C = """#include "scaled_linear.h"
int scaled_linear_f32(const scaled_linear_args_f32 *a, oneop_context *ctx) { (void)a, (void)ctx; return 0; }
"""


def source(tmp_path: Path, text: str, name: str = "kernel.cpp") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_library_exports_one_symbol_and_needs_no_runtime(language: str) -> None:
    path = host_of(language).path
    listing = subprocess.run(["nm", "-D", str(path)], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in listing.splitlines() if line.split()[-2] not in ("U", "w")]
    assert defined == ["oneop_library_v1"]
    assert not re.search(r"torch|at::|c10|Py[A-Z_]|Ort", listing)
    needed = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(\w+)", needed)) <= {"libc", "libstdc", "libgcc_s", "libm"}


def test_more_exports_and_units_for_a_target_that_wraps_kernels(tmp_path: Path) -> None:
    unit = Unit(
        "adapter", "c", '#include "adapter.h"\nONEOP_EXPORT int adapter(void);\nint adapter(void) { return VALUE; }\n'
    )
    library = kernel_library(
        [linear_spec(source(tmp_path, GOOD))],
        extra_units=[unit],
        extra_headers={"adapter.h": '#include "oneop.h"\n#define VALUE 5\n'},
        extra_exports=["adapter"],
        title="an adapter",
        stem="adapted",
    )
    path = build(library)
    assert path.name == "libadapted.so"
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert sorted(line.split()[-1] for line in listing.splitlines()) == ["adapter", "oneop_library_v1"]


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_table_says_what_the_definitions_say(language: str) -> None:
    host = host_of(language)
    assert host.table.abi_version == 1
    assert host.table.n_operators == len(DEFINITIONS)
    for definition in DEFINITIONS.values():
        operator = host.operator(definition)
        assert operator.n_inputs == len(definition.inputs)
        assert operator.n_outputs == len(definition.outputs)
        assert operator.n_attributes == len(definition.attributes)
        assert operator.n_dims == len(definition.dims)
        assert operator.n_dtypes == len(definition.elements)


def test_a_header_that_is_out_of_date_beside_the_source_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "scaled_linear.h").write_text("#ifndef ONEOP_KERNEL_SCALED_LINEAR_H\n#error old\n#endif\n")
    assert build(kernel_library([linear_spec(source(tmp_path, GOOD))])).exists()
    kernel_c = source(tmp_path, GOOD_C, "kernel.c")
    assert build(kernel_library([linear_spec(kernel_c, "float32")])).exists()


def test_several_sources_and_both_languages_in_one_library(tmp_path: Path) -> None:
    first = source(
        tmp_path,
        GOOD_C.replace("return 0", "return helper()").replace("int scaled", "int helper(void);\nint scaled"),
        "a.c",
    )
    second = source(tmp_path, '#include "scaled_linear.h"\nint helper(void);\nint helper(void) { return 0; }\n', "b.c")
    folder = tmp_path / "other"
    folder.mkdir()
    gradient = """#include "scaled_linear_grad.h"
template <class T> void scaled_linear_grad(const scaled_linear_grad_args<T> &, oneop::Context &) {}
"""
    third = source(folder, gradient, "a.cpp")
    library = kernel_library(
        [
            KernelSpec(LINEAR, (first, second), KernelOptions(dtypes=(BY_NAME["float32"],))),
            KernelSpec(GRADIENT, (third,), KernelOptions(flags=("-DX=1",), march="native")),
        ]
    )
    assert [unit.name for unit in library.units] == ["a", "b", "a_2", "oneop_table", "oneop_glue"]
    assert [unit.flags for unit in library.units if unit.name == "a_2"] == [
        ("-fvisibility-inlines-hidden", "-march=native", "-DX=1")
    ]
    assert build(library).exists()


def failure(library: Library) -> str:
    with pytest.raises(BuildError) as caught:
        build(library)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.replace("void scaled_linear(", "void scaled_liner("),
        GOOD.replace("const scaled_linear_args<T> &a", "scaled_linear_args<T> &a"),
        GOOD.replace(", oneop::Context &", ""),
        GOOD.replace("template", "namespace mine { template") + "}\n",
    ],
    ids=["empty", "another name", "another type", "another count", "in a namespace"],
)
def test_a_kernel_in_cpp_that_is_missing_or_of_another_type(tmp_path: Path, text: str) -> None:
    said = failure(kernel_library([linear_spec(source(tmp_path, text))]))
    assert (
        "kernel.cpp does not define `template <class T> void scaled_linear(const scaled_linear_args<T>& a, "
        "oneop::Context& ctx)`, outside of any namespace.\n" in said
    )


def test_an_error_of_the_users_comes_without_what_follows_from_it(tmp_path: Path) -> None:
    path = source(tmp_path, "broken\n")
    said = failure(kernel_library([linear_spec(path)]))
    assert "does not define" not in said.split(str(path))[0]
    assert f"{path}:1:1: error: " in said.splitlines()[1]


def test_a_kernel_in_cpp_that_returns_something(tmp_path: Path) -> None:
    text = GOOD.replace("void", "int").replace("value = 1;", "value = 1; return 0;")
    said = failure(kernel_library([linear_spec(source(tmp_path, text))]))
    assert "`scaled_linear` in kernel.cpp has to return void; end it with ctx.fail(message) where it fails." in said


def test_a_kernel_for_one_dtype_need_not_be_a_template(tmp_path: Path) -> None:
    text = GOOD.replace("template <class T> ", "").replace("<T>", "<float>").replace("T &value", "float &value")
    assert build(kernel_library([linear_spec(source(tmp_path, text), "float32")])).exists()
    assert "does not define" in failure(kernel_library([linear_spec(source(tmp_path, text))]))


def test_a_kernel_in_c_that_is_missing(tmp_path: Path) -> None:
    path = source(tmp_path, GOOD_C, "kernel.c")
    assert (
        "kernel.c does not define `int scaled_linear_f64(const scaled_linear_args_f64 *a, oneop_context *ctx)`, which "
        "its definition admits (float64). Define it, or name those you serve in dtypes=[...]."
    ) in failure(kernel_library([linear_spec(path)]))
    assert (
        "kernel.c does not define `int scaled_linear_f16(const scaled_linear_args_f16 *a, oneop_context *ctx)`, which "
        "dtypes=... asks for (float16). Define it, or leave the dtype out of dtypes=...."
    ) in failure(kernel_library([linear_spec(path, "float32", "float16")]))


def test_a_kernel_in_c_of_another_type(tmp_path: Path) -> None:
    path = source(tmp_path, GOOD_C.replace("oneop_context *ctx)", "oneop_context *ctx, int more)"), "kernel.c")
    said = failure(kernel_library([linear_spec(path, "float32")]))
    assert re.search(rf"{re.escape(str(path))}:2:\d+: error: conflicting types for 'scaled_linear_f32'", said)


def test_an_error_names_the_file_and_line_of_the_user(tmp_path: Path) -> None:
    for name, text in {"kernel.cpp": GOOD + "\nint broken(;\n", "kernel.c": GOOD_C + "\n\n\nint broken(;\n"}.items():
        path = source(tmp_path, text, name)
        assert re.search(
            rf"{re.escape(str(path))}:6:\d+: error: ", failure(kernel_library([linear_spec(path, "float32")]))
        )


def test_clang_and_gcc_words_are_understood() -> None:
    spec = linear_spec(Path("/k/kernel.c"))
    wanted = "kernel.c does not define `int scaled_linear_f64("
    for said in (
        "glue.c:(.text+0x1): undefined reference to `scaled_linear_f64'",
        "ld.lld: error: undefined symbol: scaled_linear_f64\n>>> referenced by",
        'Undefined symbols for architecture arm64:\n  "_scaled_linear_f64", referenced from:\n',
    ):
        assert (explain([spec], said) or "").startswith(wanted)
    assert explain([spec], "undefined reference to `cos'") is None
    message = "kernel.cpp does not define `void f()`, outside of any namespace"
    for said in (
        f"a.cpp:3:1: error: static assertion failed: {message}\n  3 | s",
        f"a.cpp:3:1: error: static_assert failed due to requirement '!missing' \"{message}\"\n",
        f"a.cpp:3:1: error: static assertion failed due to requirement '!missing': {message}\n",
    ):
        assert explain([spec], said) == f"{message}."


def test_two_operators_with_one_header_name(tmp_path: Path) -> None:
    other = definition_of(scaled_linear, "other::Scaled_linear")
    path = source(tmp_path, GOOD)
    with pytest.raises(DefinitionError) as caught:
        kernel_library([linear_spec(path), KernelSpec(other, (path,))])
    assert (
        str(caught.value)
        == "other::Scaled_linear: demo::scaled_linear in the same file has kernels too, and both headers would "
        "be Scaled_linear.h. Rename one of them, or move it to another file."
    )


def test_paths_that_cannot_be_included() -> None:
    with pytest.raises(
        BuildError, match=r"the path of the kernel source 'kernel\.cpp' cannot be included\. Give an absolute path"
    ):
        kernel_library([linear_spec(Path("kernel.cpp"))])
    with pytest.raises(BuildError, match="without quotes and line breaks"):
        kernel_library([linear_spec(Path('/a"b/kernel.cpp'))])


def test_a_path_with_spaces_and_other_letters(tmp_path: Path) -> None:
    folder = tmp_path / "my kernels é"
    folder.mkdir()
    assert build(kernel_library([linear_spec(source(folder, GOOD, "my kernel.cpp"))])).exists()


# ---- sanitizers


def run_sanitized(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python with AddressSanitizer and UBSan in the process."""
    runtimes = [runtime(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0,halt_on_error=1,abort_on_error=0,exitcode=99",
        "UBSAN_OPTIONS": "halt_on_error=1,print_stacktrace=1,exitcode=99",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=300
    )


def runtime(name: str) -> str:
    found = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(found).is_absolute(), f"{name} is not installed; it comes with g++"
    return str(Path(found).resolve())


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_the_contract_under_sanitizers(tmp_path: Path) -> None:
    tests = str(Path(__file__).with_name("test_contract.py"))
    code = f"""
import sys
import pytest
from kernels import contract_host
contract_host.EXTRA_FLAGS = contract_host.SANITIZE
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", {tests!r}]))
"""
    done = run_sanitized(tmp_path, code)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\d{3} passed", done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_the_sanitizers_see_a_kernel_that_reads_too_far(tmp_path: Path) -> None:
    text = GOOD.replace("value = 1", "value = a.x.data[a.x.numel() + 40]")
    library = kernel_library([linear_spec(source(tmp_path, text))])
    path = build(replace(library, flags=(*library.flags, *SANITIZE)))
    code = f"""
from pathlib import Path
import numpy as np
from kernels.ctypes_host import Host, array
from kernels.test_generation import LINEAR
host = Host(Path({str(path)!r}), (LINEAR,))
host.run("scaled_linear", array(np.ones((50, 40))), array(np.ones((3, 40))), None)
"""
    done = run_sanitized(tmp_path, code)
    assert done.returncode == 99
    assert "heap-buffer-overflow" in done.stderr
