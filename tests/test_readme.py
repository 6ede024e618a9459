"""What the README shows is what happens: its blocks are slices of files, or run here, in order, in one folder."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from oneop.kernels.generate import header_text
from oneop.registry import load_file

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
TOOLS = Path(sys.executable).parent


class Block(NamedTuple):
    tag: str  # what the comment above it says
    language: str
    code: str


def blocks(text: str) -> list[Block]:
    found = re.findall(r"(?:<!-- ([\w: ./]+) -->\n)?```(\w+)\n(.*?)```\n", text, re.DOTALL)
    return [Block(*match) for match in found]


def tagged(tag: str) -> list[Block]:
    found = [block for block in blocks(README) if block.tag == tag or block.tag.startswith(f"{tag}: ")]
    assert found, tag
    return found


def run(command: list[object], folder: Path) -> str:
    # A pinned width: rich would cut what it prints to that of the terminal that runs the tests.
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the definition that the README opens with, and its kernels from the examples."""
    made = tmp_path_factory.mktemp("readme")
    (definition,) = tagged("file")
    (made / definition.tag.removeprefix("file: ")).write_text(definition.code)
    for source in (ROOT / "examples" / "scaled_linear_cpp").glob("*.cpp"):
        shutil.copy(source, made)
    return made


def test_every_block_is_checked_by_something() -> None:
    kinds = [block.tag.partition(":")[0] for block in blocks(README)]
    assert kinds == ["file", "", "run", "raises", "new", "run", "run", "", "shell"]
    assert README.count("```") == 2 * len(kinds)


def test_it_opens_with_one_sentence_the_definition_and_two_commands() -> None:
    sentence = README.split("\n\n")[1]
    assert sentence.startswith("**Define a PyTorch operator once; train with it, export it, and run it natively in ")
    definition, commands = blocks(README)[:2]
    assert "@oneop.op(" in definition.code
    assert [line.split("#")[0].strip() for line in commands.code.splitlines()] == ["make demo", "make test"]


def test_the_definition_is_that_of_the_example() -> None:
    def operator(text: str) -> list[str]:
        text = text[text.index("@oneop.op(") :].partition("\n\nclass ")[0]
        lines = [line.split("   #")[0].rstrip() for line in text.splitlines()]
        return [line for line in lines if line]

    example = (ROOT / "examples" / "scaled_linear_cpp" / "scaled_linear.py").read_text()
    assert operator(tagged("file")[0].code) == operator(example)


@pytest.fixture(scope="module")
def script(folder: Path) -> Path:
    """All the code, one block after the other."""
    script = ["import oneop"]
    for block in blocks(README):
        if block.tag == "run":
            script.append(block.code)
        elif block.tag == "raises":
            code, comment = block.code.split("\n#", 1)
            said = " ".join(line.strip("# ") for line in f"#{comment}".splitlines())
            name, _, message = said.partition(": ")
            script.append(
                f"try:\n{textwrap.indent(code, '    ')}\n"
                f"except oneop.{name} as error:\n    assert str(error) == {message!r}, error\n"
                "else:\n    raise AssertionError('it should have been refused')\n"
            )
    written = folder / "script.py"
    written.write_text("\n".join(script))
    return written


def test_the_code_and_the_commands_run(folder: Path, script: Path) -> None:
    """In one test: a command looks at the model that the code writes."""
    run([sys.executable, script], folder)
    assert (folder / "model.onnx").is_file()
    for line in tagged("shell")[0].code.splitlines():
        command = line.split("#")[0].split()
        assert command[0] == "oneop"
        run([TOOLS / "oneop", *command[1:]], folder)
    (kernel,) = tagged("new")
    assert kernel.code in (folder / kernel.tag.removeprefix("new: ")).read_text()
    assert (folder / "scaled_linear.h").is_file()
    assert (folder / "build" / "libscaled_linear_onnxruntime.so").is_file()
    assert list((folder / "dist").glob("scaled_linear_ops-*.whl"))


def test_the_failure_it_shows_is_that_of_the_document_which_is_what_happens() -> None:
    (shown,) = (block.code for block in blocks(README) if block.language == "text")
    assert " ".join(shown.split()) in " ".join((ROOT / "docs" / "check.md").read_text(encoding="utf-8").split())


DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_slices_are_slices(path: Path) -> None:
    for block in blocks(path.read_text(encoding="utf-8")):
        kind, _, file = block.tag.partition(": ")
        if kind == "slice":
            assert block.code in (ROOT / file).read_text()
        elif kind == "header":
            headers = [header_text(operator.kernel_spec()) for operator in load_file(ROOT / file)]
            assert any(block.code in header for header in headers), headers


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", prose):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("text", [README, CHINESE], ids=["README.md", "README.zh-CN.md"])
def test_the_figures_hold_their_bounds(text: str) -> None:
    rows = re.findall(r"^\|.* \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) >= 5
    assert all(float(ratio) <= float(bound) for ratio, bound in rows)


def test_the_chinese_one_has_the_same_shape() -> None:
    def shape(text: str) -> list[str]:
        prose = re.sub(r"```.*?```", "```", text, flags=re.DOTALL)
        return re.findall(r"^(#+ |- |\| |```)", prose, re.MULTILINE)

    assert shape(CHINESE) == shape(README)
    assert blocks(CHINESE) == blocks(README)
    figures = re.compile(r"\d+(?:\.\d+)+")
    assert sorted(figures.findall(CHINESE)) == sorted(figures.findall(README))
