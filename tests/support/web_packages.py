"""ONNX Runtime's packages for Node.js and for web pages, installed below build/web, once.

`python tests/support/web_packages.py` does that ahead of time. tests/web/package-lock.json says what is installed, and
no script of a package is run: onnxruntime-node's would fetch libraries for a GPU.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
WANTED = ROOT / "tests" / "web"
FOLDER = ROOT / "build" / "web"


def missing() -> str | None:
    """Why there can be no packages here."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no Node.js with npm here: apt install nodejs npm"
    return None


def packages() -> Path:
    """The folder node_modules, with what the lock file says; it appears when it is complete."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(FOLDER.parent / ".web.lock"):  # test processes ask at the same time
        if not _complete():
            _install()
    return FOLDER / "node_modules"


def _complete() -> bool:
    lock = (WANTED / "package-lock.json").read_bytes()
    stamp = FOLDER / "package-lock.json"
    return stamp.is_file() and stamp.read_bytes() == lock and (FOLDER / "node_modules").is_dir()


def _install() -> None:
    workplace = Path(tempfile.mkdtemp(prefix=".web.", dir=FOLDER.parent))
    try:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(WANTED / name, workplace)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
        done = subprocess.run(npm, cwd=workplace, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"npm ci failed in {workplace}:\n{done.stdout}{done.stderr}")
        if FOLDER.exists():  # of another lock file
            os.replace(FOLDER, f"{workplace}.old")
        os.replace(workplace, FOLDER)
    finally:
        for folder in (workplace, Path(f"{workplace}.old")):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    print(missing() or packages())
    sys.exit(missing() is not None)
