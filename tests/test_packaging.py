"""The wheel holds what an installed oneop needs: headers, adapter and runtime sources, templates."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    command = [Path(sys.executable).parent / "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("oneop-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.startswith("oneop/")}
    package = ROOT / "src" / "oneop"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {f"oneop/{path.relative_to(package)}" for path in files}
    assert packed == wanted
    assert "oneop_pytest.py" in names
    assert {"oneop/kernels/include/oneop.h", "oneop/targets/pytorch/runtime.cpp"} <= packed
