"""The generated sources as they are read, and what is written where."""

import os
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import Float
from torch import Tensor

import oneop
from oneop.definition.signature import definition_of
from oneop.errors import BuildError
from oneop.kernels.spec import KernelSpec
from oneop.registry import load_file
from oneop.targets.tensorrt import library
from oneop.targets.tensorrt.checks import served
from oneop.targets.tensorrt.shapes import shape_lines
from support.tensorrt_host import specs_of

GOLDEN = Path(__file__).with_name("golden")
EXAMPLE = Path(__file__).parents[2] / "examples" / "scaled_linear_cpp" / "scaled_linear.py"
BOUNDS = {"trtt::positive": {"p": "n", "q": "max(n - 1, 0)"}}


def example_specs() -> tuple[KernelSpec, ...]:
    return served([item.kernel_spec() for item in load_file(EXAMPLE)])


def require_golden(name: str, text: str) -> None:
    """ONEOP_UPDATE_GOLDEN=1 writes the files again."""
    golden = GOLDEN / name
    if os.environ.get("ONEOP_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_golden_example() -> None:
    texts = library.source_texts(example_specs(), bounds={})
    assert list(texts) == ["scaled_linear_plugin.cpp", "oneop_tensorrt.h", "oneop_tensorrt.cpp"]
    require_golden("scaled_linear_plugin.cpp", texts["scaled_linear_plugin.cpp"])


def test_golden_of_every_feature() -> None:
    """Every kind of attribute and input, expressions, leading groups, sizes that only the kernel knows, bounds."""
    texts = library.source_texts(specs_of("plugins"), bounds=BOUNDS, workspace=4096)
    require_golden("plugins_plugin.cpp", texts["plugins_plugin.cpp"])


def nested(
    x: Float[Tensor, "n m"], *, s: int = 3
) -> Float[Tensor, "n-(m-(s-1)) n-(m+s) (n-m)-s (n+m)*(s-1) n*(m//s) n//m//s n//(m//s) n%(m%s) 2-n (0-n)//s"]: ...


def test_expressions_keep_their_parentheses() -> None:
    lines = shape_lines(definition_of(nested, "demo::nested"), {})
    assert (
        lines[3].split("; //")[0]
        == "oneop_shapes.output(0, {n - (m - (s - 1)), n - (m + s), n - m - s, (n + m) * (s - 1),"
        " n * trt::floor_divide(m, s), trt::floor_divide(trt::floor_divide(n, m), s),"
        " trt::floor_divide(n, trt::floor_divide(m, s)), trt::modulo(n, trt::modulo(m, s)), 2 - n,"
        " trt::floor_divide(0 - n, s)})"
    )


def test_gradients_have_no_plugin() -> None:
    operators = load_file(EXAMPLE)
    assert [item.definition.base for item in operators] == ["scaled_linear", "scaled_linear_grad"]
    assert [spec.definition.base for spec in example_specs()] == ["scaled_linear"]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (
            {"trtt::other": {"k": "n"}},
            (
                "bounds: 'trtt::other' is not built here. Built are: trtt::affine, trtt::attributes, trtt::doubled,"
                " trtt::failing, trtt::positive, trtt::quantised, trtt::row_sums, trtt::scratching, trtt::sizes,"
                " trtt::take, trtt::totals, trtt::windows."
            ),
        ),
        (
            {"trtt::positive": {"k": "n"}},
            "trtt::positive: there is no `?k` to give a bound. Sizes of that kind: ?p, ?q.",
        ),
        (
            {"trtt::positive": {"p": "m"}},
            (
                "trtt::positive: the bound of `?p`, 'm', names `m`, which is not known before the kernel runs. Known"
                " are: n."
            ),
        ),
        (
            {"trtt::positive": {"p": "n n"}},
            "trtt::positive: the bound of `?p`, 'n n', is not one expression. Write one such as n*m.",
        ),
        (
            {"trtt::positive": {"p": "n**2"}},
            None,
        ),
        (
            {"trtt::positive": {"p": 5}},
            "trtt::positive: the bound of `?p`, 5, is of type int. Write an expression as a string, such as 'n*m'.",
        ),
        (
            {"trtt::positive": {"p": "2-3"}},
            "trtt::positive: the bound of `?p`, '2-3', is negative. Write an expression such as n*m.",
        ),
        (
            {"trtt::positive": {"p": "min(n,n%(3-3))"}},
            (
                "trtt::positive: the bound of `?p`, 'min(n,n%(3-3))', is no size: `n%(3-3)` divides by zero. Write an"
                " expression such as n*m."
            ),
        ),
        (
            {"trtt::positive": {"p": "n+4//0"}},
            (
                "trtt::positive: the bound of `?p`, 'n+4//0', is no size: `4//0` divides by zero. Write an expression"
                " such as n*m."
            ),
        ),
        (
            {"trtt::positive": "n"},
            (
                "tensorrt: bounds={'trtt::positive': 'n'} does not say which size of which operator is bounded."
                ' Write for example bounds={"demo::nonzero": {"k": "n*m"}}.'
            ),
        ),
    ],
)
def test_bounds_that_say_nothing_are_refused(bounds: Any, message: str | None) -> None:
    with pytest.raises(BuildError) as caught:
        library.source_texts(specs_of("plugins"), bounds=bounds)
    if message is None:
        assert str(caught.value).startswith("trtt::positive: the bound of `?p`, 'n**2', cannot be read: ")
    else:
        assert str(caught.value) == message


def test_without_headers_the_sources_are_there_and_the_message_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(tmp_path / "nowhere"))
    with pytest.raises(BuildError) as caught:
        library.build_library(example_specs(), tmp_path / "out")
    assert (
        str(caught.value)
        == f"the plugins' sources are in {tmp_path / 'out'} (scaled_linear_plugin.cpp, oneop_tensorrt.h,"
        f" oneop_tensorrt.cpp), but the library was not built: TENSORRT_INCLUDE is {tmp_path / 'nowhere'}, and there is"
        f" no {tmp_path / 'nowhere' / 'NvInferRuntime.h'}. Set it to the folder that holds it."
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "oneop_tensorrt.cpp",
        "oneop_tensorrt.h",
        "scaled_linear_plugin.cpp",
    ]
    assert (tmp_path / "out" / "scaled_linear_plugin.cpp").read_text() == (
        GOLDEN / "scaled_linear_plugin.cpp"
    ).read_text()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(BuildError) as caught:
        library.build_library(example_specs(), tmp_path / "out")
    assert (
        str(caught.value)
        == f"scaled_linear_plugin.cpp cannot be written to {tmp_path / 'out'}, which is a file. Name a folder."
    )


@pytest.mark.parametrize("workspace", [-1, 1.5, True, "4", 2**63])
def test_a_workspace_that_is_no_size_is_refused(tmp_path: Path, workspace: object) -> None:
    example = EXAMPLE.parents[1] / "scaled_linear_cuda" / "scaled_linear.py"
    with pytest.raises(BuildError) as caught:
        oneop.build(example, "tensorrt", tmp_path, workspace=workspace)
    assert (
        str(caught.value)
        == f"tensorrt: workspace={workspace!r} is no number of bytes. Give a whole number from 0, such as 4 << 20."
    )
    assert not list(tmp_path.iterdir())


def test_an_option_that_is_not_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        oneop.build(EXAMPLE, "tensorrt", tmp_path, bound={})
    assert str(caught.value) == "tensorrt: there is no option `bound`. It takes bounds, workspace."
