"""Exported programs in a fresh process: the missing operator is named, with the import that brings it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from serving.operators import doubled, kept, spread

import oneop
from oneop.errors import ExportError

TESTS = Path(__file__).resolve().parents[1]

LOAD = """
import sys, torch, oneop
if len(sys.argv) == 4:
    exec(sys.argv[3])
try:
    print(oneop.load_exported(sys.argv[1]).module()(torch.load(sys.argv[2])).tolist())
except oneop.ExportError as error:
    print(error)
"""


class Model(torch.nn.Module):
    def forward(self, x):
        return kept(spread([doubled(x), x])[1], above=0.5)


def saved(folder: Path, strict: bool) -> tuple[Path, Path, torch.Tensor]:
    x = torch.randn(3, 4)
    program = torch.export.export(Model(), (x,), strict=strict)
    torch.export.save(program, folder / "model.pt2")
    torch.save(x, folder / "x.pt")
    return folder / "model.pt2", folder / "x.pt", Model()(x)


def in_a_fresh_process(*arguments: Path | str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-c", LOAD, *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("strict", [False, True])
def test_a_missing_operator_is_named_with_the_import_that_brings_it(tmp_path, strict):
    model, x, expected = saved(tmp_path, strict)
    assert in_a_fresh_process(model, x) == (
        f"{model}: the program calls serving::doubled, serving::spread, serving::kept, which this process does not"
        " know. First `import serving.operators`.\n"
    )
    assert in_a_fresh_process(model, x, "import serving.operators") == f"{expected.tolist()}\n"


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        (None, "First import the module that defines them."),
        (
            "__main__",
            "First move their definition from the script that exported them to a module, and import that.",
        ),
        ("oneop_file_mine", "First call oneop.registry.load_file with the path of mine.py."),
    ],
)
def test_where_no_import_brings_it(tmp_path, module, remedy):
    model, _, _ = saved(tmp_path, strict=False)
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(model) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            content = source.read(name).replace(b"torch.ops.serving.", b"torch.ops.unknown.")
            said = json.dumps("serving.operators").replace('"', '\\"').encode()
            target.writestr(name, content.replace(said, json.dumps(module).replace('"', '\\"').encode()))
    with pytest.raises(ExportError) as caught:
        oneop.load_exported(other)
    assert str(caught.value) == (
        f"{other}: the program calls unknown::doubled, unknown::spread, unknown::kept, which this process does not"
        f" know. {remedy}"
    )


def test_the_annotation_outlives_decompositions(tmp_path):
    program = torch.export.export(Model(), (torch.randn(3, 4),)).run_decompositions()
    named = [node.meta["custom"]["oneop"] for node in program.graph.nodes if "serving" in str(node.target)]
    assert named == ["serving.operators"] * 3
