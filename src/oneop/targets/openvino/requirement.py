"""What a package with extensions of OpenVINO requires."""

from importlib.metadata import version

from oneop.targets.requirements import Requirement


def requirement() -> Requirement:
    """A library serves the release that it was built with."""
    return Requirement(f"openvino=={version('openvino')}", ("libopenvino", "libtbb"))
