"""The public names, exactly, and the examples in their docstrings."""

import doctest
import inspect

import pytest

import oneop

NAMES = {
    "BuildError",
    "CallError",
    "DefinitionError",
    "ExportError",
    "OneopError",
    "Operator",
    "build",
    "epochs",
    "export",
    "from_function",
    "load_exported",
    "onnx",
    "onnxruntime",
    "op",
    "openvino",
    "registry",
    "testing",
    "verify_sharding",
}
WITH_EXAMPLES = sorted(name for name in NAMES if ">>>" in (inspect.getdoc(getattr(oneop, name)) or ""))


def test_the_public_names_are_these() -> None:
    assert set(oneop.__all__) == NAMES
    assert len(oneop.__all__) == len(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_is_there_and_documented(name: str) -> None:
    assert inspect.getdoc(getattr(oneop, name))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'oneop' has no attribute 'opp'"):
        _ = oneop.opp


def test_the_functions_people_start_with_have_examples() -> None:
    assert {"export", "op"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_in_its_docstring_runs(name: str) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(oneop, name), name, globs={})
    assert example.examples
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert result.failed == 0


def test_the_errors_have_one_base() -> None:
    for name in ("BuildError", "CallError", "DefinitionError", "ExportError"):
        assert issubclass(getattr(oneop, name), oneop.OneopError)
