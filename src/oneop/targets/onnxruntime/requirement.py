"""What a package with libraries for ONNX Runtime requires."""

from oneop.targets.requirements import Requirement


def requirement() -> Requirement:
    return Requirement("onnxruntime>=1.20")
