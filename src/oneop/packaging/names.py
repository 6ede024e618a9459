"""What a package may be called, and what it calls itself where nobody says."""

import keyword
import re
import sys
from dataclasses import dataclass

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from oneop.errors import BuildError

_RUNTIMES = ("jaxtyping", "numpy", "onnx", "onnxruntime", "openvino", "oneop", "packaging", "tensorrt", "torch")


@dataclass(frozen=True)
class Names:
    """``distribution`` is what pip installs, ``module`` what Python imports."""

    distribution: str
    module: str
    version: str


def names_of(stem: str, name: str | None, version: str) -> Names:
    """``scaled_linear.py`` gives the distribution ``scaled-linear-ops`` and the module ``scaled_linear_ops``.

    Raises BuildError where pip or Python would not take a name.
    """
    wanted = f"{stem}-ops" if name is None else name
    try:
        distribution = canonicalize_name(wanted, validate=True)
    except InvalidName:
        raise BuildError(
            f"{wanted!r} is not a name for a package: it may hold letters, digits, `-`, `_` and `.`, and begins and"
            " ends with a letter or a digit. Pass another --name."
        ) from None
    module = re.sub(r"[-.]", "_", distribution)
    if not module.isidentifier() or keyword.iskeyword(module):
        raise BuildError(f"`import {module}` is not Python. Pass another --name than {wanted!r}.")
    if module in sys.stdlib_module_names or module in _RUNTIMES:
        raise BuildError(
            f"a package {wanted!r} would hide the module {module} of that name. Pass another --name, such as"
            f" {distribution}-ops."
        )
    try:
        normal = str(Version(version))
    except InvalidVersion:
        raise BuildError(
            f"{version!r} is not a version of a Python package. Pass a --version such as 1.0 or 2.1.post1."
        ) from None
    return Names(distribution, module, normal)
