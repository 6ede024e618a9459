"""The test host notices what the generated sources lose: each change here has to make it fail."""

import re
from pathlib import Path

import numpy as np

from support.tensorrt_host import Answer, changed_library, library, needs_headers, node_of, operators, run

pytestmark = needs_headers

X = np.array([1.0, 2.0], np.float32)
RENAMED = '{"beta", ONEOP_FLOAT, false, trt::Value(0.0)}'


def mutated(texts: dict[str, str]) -> dict[str, str]:
    """A field of `scaled` is renamed, one of `shifted` dropped, one of `repeated` not serialised."""
    plugin, support = texts["small_plugin.cpp"], texts["oneop_tensorrt.cpp"]
    assert RENAMED in plugin
    plugin = plugin.replace(RENAMED, RENAMED.replace("beta", "betta"))
    plugin, dropped = re.subn(
        r'^ *\{"times", ONEOP_INT, false, trt::Value\(INT64_C\(1\)\)\},.*\n', "", plugin, flags=re.M
    )
    assert dropped == 1
    lost = "      if (given_[i] != '1')\n"
    assert lost in support
    support = support.replace(lost, "      if (given_[i] != '1' || std::strcmp(op_.name, \"trts::repeated\") == 0)\n")
    return {**texts, "small_plugin.cpp": plugin, "oneop_tensorrt.cpp": support}


def answer_of(path: Path, name: str, folder: Path, **values: float) -> Answer:
    return run(path, node_of(operators("small")[name], [X], values), [X], folder)


def test_unchanged_sources_pass(tmp_path: Path) -> None:
    path = library("small")
    np.testing.assert_array_equal(answer_of(path, "scaled", tmp_path, alpha=3.0, beta=0.5).outputs[0], 3 * X + 0.5)
    np.testing.assert_array_equal(answer_of(path, "shifted", tmp_path, by=0.5, times=3).outputs[0], X + 1.5)
    np.testing.assert_array_equal(answer_of(path, "repeated", tmp_path, times=3).outputs[0], [X, X, X])


def test_a_renamed_field_is_noticed(tmp_path: Path) -> None:
    answer = answer_of(changed_library("small", mutated), "scaled", tmp_path, beta=0.5)
    assert answer.error == "attribute `beta` of the node is not a field of the creator: its value is lost"


def test_a_dropped_field_is_noticed(tmp_path: Path) -> None:
    answer = answer_of(changed_library("small", mutated), "shifted", tmp_path, by=0.5, times=3)
    assert answer.error == "attribute `times` of the node is not a field of the creator: its value is lost"


def test_a_plugin_that_lacks_a_field_is_not_made(tmp_path: Path) -> None:
    """By itself, too: what the kernel reads would not be there."""
    node = node_of(operators("small")["shifted"], [X], {"by": 0.5}).without("times")
    answer = run(changed_library("small", mutated), node, [X], tmp_path)
    assert answer.error == "Could not create the plugin."
    assert answer.log == [
        "error: trts::shifted: the plugin's sources describe another definition than the kernels. Build the library"
        " again."
    ]


def test_a_field_that_is_not_serialised_is_noticed(tmp_path: Path) -> None:
    answer = answer_of(changed_library("small", mutated), "repeated", tmp_path, times=3)
    assert answer.error == "Could not deserialize the plugin."
    assert answer.log == ["error: trts::repeated: the engine lost attribute `times`. Build the engine again."]
