"""What a package with libraries for exported PyTorch models requires."""

from importlib.metadata import version

from oneop.targets.requirements import Requirement


def requirement() -> Requirement:
    """A library serves the release that it was built with."""
    return Requirement(f"torch=={version('torch').partition('+')[0]}", ("libtorch", "libc10"))
