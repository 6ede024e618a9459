"""What nvcc makes of CUDA kernels: code for every GPU that is asked for, in a library that loads without one."""

import importlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cuda_operators as gallery
import examples_of_cuda
import numpy as np
import onnxruntime
import pytest
import torch
from cuda_alone import twice
from fatbin import Code, codes_in

import oneop
from oneop.definition.dtypes import BY_NAME
from oneop.errors import BuildError
from oneop.kernels.building import build, find_compiler
from oneop.kernels.compilers import has_cuda_compiler
from oneop.kernels.devices import specs_for
from oneop.kernels.library import kernel_library
from oneop.kernels.spec import KernelSpec
from oneop.targets import pytorch
from oneop.targets.pytorch import serving

sys.path.append(str(Path(__file__).parents[1] / "kernels"))
ctypes_host = importlib.import_module("ctypes_host")

pytestmark = pytest.mark.skipif(
    not has_cuda_compiler(), reason="there is no nvcc ($NVCC, PATH and $CUDA_HOME/bin were looked at)"
)
NEEDED = {
    "libc",
    "libm",
    "libstdc++",
    "libgcc_s",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
    "libpthread",
    "libdl",
    "librt",
}


def built(specs: list[KernelSpec], architectures: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONEOP_CUDA_ARCHITECTURES", architectures)
    return build(kernel_library(specs))


def only(spec: KernelSpec, *dtypes: str) -> KernelSpec:
    return replace(spec, options=replace(spec.options, dtypes=tuple(BY_NAME[name] for name in dtypes)))


@pytest.fixture(scope="module")
def library() -> Path:
    """The whole gallery, for the GPUs that differ most."""
    with pytest.MonkeyPatch.context() as patch:
        return built(specs_for(gallery.every_operator(), ["cuda"]), "75;80;90", patch)


@pytest.fixture(scope="module")
def example() -> Path:
    """The example, for all that are compiled for unless somebody chooses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ONEOP_CUDA_ARCHITECTURES", raising=False)
        operators = oneop.registry.defined_with(examples_of_cuda.scaled_linear)
        return build(kernel_library([only(spec, "float32") for spec in specs_for(operators, ["cuda"])]))


def test_the_gallery_has_code_for_the_gpus_asked_for(library: Path) -> None:
    assert codes_in(library) == [Code("elf", 75), Code("elf", 80), Code("elf", 90), Code("ptx", 90)]


def test_an_operator_has_code_for_every_family_of_gpus_and_for_those_to_come(example: Path) -> None:
    known = find_compiler("cuda").architectures
    wanted = [int(name) for name in ("75", "80", "86", "89", "90", "100", "120") if name in known]
    assert {75, 80, 86, 89, 90} <= set(wanted)
    assert [code.architecture for code in codes_in(example) if code.kind == "elf"] == wanted
    assert {code.architecture for code in codes_in(example) if code.kind == "ptx"} == {90, wanted[-1]}


@pytest.mark.skipif(shutil.which("cuobjdump") is None, reason="this CUDA toolkit has no cuobjdump")
def test_cuobjdump_sees_the_same(library: Path) -> None:
    told = subprocess.run(["cuobjdump", "--list-elf", library], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"sm_(\d+)", told)) == {"75", "80", "90"}


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ("80", [Code("elf", 80), Code("ptx", 80)]),
        ("sm_80, 9.0+PTX", [Code("elf", 80), Code("elf", 90), Code("ptx", 90)]),
        ("75+PTX;80", [Code("elf", 75), Code("ptx", 75), Code("elf", 80)]),
    ],
)
def test_architectures_may_be_chosen(wanted: str, codes: list[Code], monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes_in(built([twice.kernel_spec("cuda")], wanted, monkeypatch)) == codes


def test_the_definition_may_choose_and_the_environment_overrules_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = twice.kernel_spec("cuda")
    spec = replace(spec, options=replace(spec.options, cuda_architectures=("86",)))
    monkeypatch.delenv("ONEOP_CUDA_ARCHITECTURES", raising=False)
    assert codes_in(build(kernel_library([spec]))) == [Code("elf", 86), Code("ptx", 86)]
    assert codes_in(built([spec], "80", monkeypatch)) == [Code("elf", 80), Code("ptx", 80)]


@pytest.mark.parametrize("wanted", ["35", "new", "80;9999"])
def test_an_architecture_that_nvcc_does_not_know(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    word = wanted.rpartition(";")[2]
    with pytest.raises(BuildError) as caught:
        built([twice.kernel_spec("cuda")], wanted, monkeypatch)
    assert str(caught.value).startswith(
        f"cannot build the kernels of twice.cu: $ONEOP_CUDA_ARCHITECTURES names the GPU architecture `{word}`, and"
        " nvcc "
    )
    assert str(caught.value).endswith("Name some of these, such as 80 or 90+PTX, or install a toolkit that knows it.")


@pytest.mark.skipif(sys.platform != "linux", reason="readelf reads ELF files")
def test_it_links_neither_cuda_nor_torch_and_exports_one_function(library: Path) -> None:
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert {name.split(".")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic)} <= NEEDED
    table = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    exported = set(re.findall(r" [TDBRVW] (\w+)$", table, re.M))
    assert exported == {"oneop_library_v1"}
    assert not re.search(r" U \S*(?:cuda|Py|torch|c10)", table)


def test_the_table_says_that_its_kernels_are_cudas(library: Path) -> None:
    host = ctypes_host.Host(library, [operator.definition for operator in gallery.every_operator()])
    operator = host.operator(gallery.axpby.definition)
    assert [operator.kernels[index].device_type for index in range(operator.n_kernels)] == [2, 2, 2, 2]


def test_both_devices_in_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(specs_for([twice], ["cpu", "cuda"]), "80", monkeypatch)
    host = ctypes_host.Host(path, [twice.definition])
    operator = host.operator(twice.definition)
    assert host.table.n_operators == 1
    assert [operator.kernels[index].device_type for index in range(operator.n_kernels)] == [1, 2]
    assert host.run("twice", ctypes_host.array([1.0, 2.0]))["out"].tolist() == [2.0, 4.0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_kernel_on_a_machine_without_a_gpu_fails_with_cudas_reason(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ctypes_host.Host(library, [operator.definition for operator in gallery.every_operator()])
    monkeypatch.setattr(ctypes_host, "_kernel", lambda operator, dtypes: operator.kernels[0])
    with pytest.raises(ctypes_host.HostError, match=r"gpu::axpby: CUDA reports cudaError\w+: "):
        host.run("axpby", ctypes_host.array([1.0]), ctypes_host.array([2.0]), alpha=1.0, beta=1.0)


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return twice(x)


def test_the_library_for_onnxruntime_loads_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEOP_CUDA_ARCHITECTURES", "80")
    oneop.export(Doubled().eval(), (torch.ones(3),), tmp_path / "model.onnx", fallback="none")
    library = oneop.build(twice, "onnxruntime", tmp_path, device="cuda")
    assert codes_in(library) == [Code("elf", 80), Code("ptx", 80)]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.ones(3, np.float32)})
    assert found.tolist() == [2.0, 2.0, 2.0]


def test_the_library_for_cpp_programs_takes_both() -> None:
    """It is described only: it takes the runtime in, which takes a while to compile."""
    described = serving.describe(specs_for([twice], pytorch.DEVICES))
    assert [unit.language for unit in described.units if unit.name.startswith("twice")] == ["c++", "cuda"]
    registration = next(unit.text for unit in described.units if unit.name == "oneop_serving")
    assert registration is not None
    assert registration.count("cuda_alone::twice") == 1


def test_kernels_for_the_cpu_alone(tmp_path: Path) -> None:
    assert codes_in(oneop.build(twice, "onnxruntime", tmp_path, device="cpu")) == []
