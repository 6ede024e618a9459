"""Other releases of ONNX Runtime for the tests, each in a folder of its own.

ONEOP_ORT_SITE (folders, separated like PATH) names them; otherwise OLDER is installed below build/onnxruntime, once:
`python tests/support/ort_releases.py` does that ahead of time.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDER = ("1.20.1", "1.23.2")
"""The oldest release that oneop supports, and the last whose shape inference could not bear an absent input."""

FOLDER = Path(__file__).parents[2] / "build" / "onnxruntime"


def folders() -> dict[str, Path | None]:
    """The folder of each release; None where it has yet to be installed."""
    given = os.environ.get("ONEOP_ORT_SITE")
    if given:
        return {Path(folder).name: Path(folder) for folder in given.split(os.pathsep)}
    found = {release: FOLDER / release for release in OLDER}
    return {release: folder if folder.is_dir() else None for release, folder in found.items()}


def install(release: str) -> Path:
    """Puts the wheel, without its dependencies, into its folder, which appears when it is complete."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    workplace = Path(tempfile.mkdtemp(prefix=f".{release}.", dir=FOLDER))
    try:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(workplace), f"onnxruntime=={release}"], check=True)
        try:
            workplace.rename(FOLDER / release)
        except OSError:  # another process was faster
            if not (FOLDER / release).is_dir():
                raise
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return FOLDER / release


if __name__ == "__main__":
    for release, folder in folders().items():
        print(folder or install(release))
