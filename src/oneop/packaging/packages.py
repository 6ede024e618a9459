"""``oneop package``: a wheel with the built libraries of a definition file."""

import importlib.metadata
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

import oneop
from oneop import registry
from oneop.errors import BuildError
from oneop.packaging.names import Names, names_of
from oneop.packaging.platforms import platform_tag
from oneop.packaging.wheels import write_wheel
from oneop.targets.building import build
from oneop.targets.requirements import Requirement, requirement_of

if TYPE_CHECKING:
    from oneop.operator import Operator

_FOLDER = "lib"
_PYTHON = ">=3.9"


@dataclass(frozen=True)
class _Built:
    """A library, and the file name of it."""

    target: str
    path: Path
    requirement: Requirement | None


def package(
    file: str | Path,
    output_dir: str | Path,
    *,
    targets: Sequence[str] = ("onnxruntime",),
    name: str | None = None,
    version: str = "0.1.0",
    license_file: str | Path | None = None,
) -> Path:
    """Builds the libraries of a definition file and writes a wheel that carries them; returns its path.

    Whoever installs the wheel needs no compiler, and neither torch nor oneop: it requires the runtimes only. Its module
    has ``libraries()``, ``check(model)``, ``FINGERPRINTS``, and for ONNX Runtime ``session_options()``, for OpenVINO
    ``extensions()``. The same file, compiler and oneop give the same bytes.

    Args:
        file: the Python file that defines the operators.
        output_dir: the folder that the wheel is written to; it is made where it does not exist.
        targets: the runtimes, as ``oneop.build`` takes them.
        name: of the distribution; ``scaled-linear-ops`` for ``scaled_linear.py`` if not given.
        version: of the distribution.
        license_file: the license of the kernels. That of oneop, whose adapter is in the libraries, is always there.

    Raises BuildError where a name is not one, a library cannot be built, or the folder cannot be written to.
    """
    names = names_of(Path(file).stem, name, version)
    licenses = _licenses(license_file)
    if not targets or len(set(targets)) != len(targets):
        raise BuildError(f"targets are {list(targets)}; a package needs one or more, each of them once.")
    operators = [operator for operator in registry.load_file(file) if not operator.definition.is_gradient]
    served = [operator for operator in operators if operator.has_kernels]
    with tempfile.TemporaryDirectory() as folder:
        built = [
            _Built(target, build(operators, target, Path(folder) / target), requirement_of(target))
            for target in targets
        ]
        provided = [prefix for item in built if item.requirement for prefix in item.requirement.libraries]
        portable = all(_is_portable(operator) for operator in served)
        tag = platform_tag([item.path for item in built], provided, any_processor=portable)
        files = {f"{_FOLDER}/{item.path.name}": item.path.read_bytes() for item in built}
    files["py.typed"] = b""
    files["__init__.py"] = _module(names, Path(file), served, built)
    metadata = {f"licenses/{title}": content for title, content in licenses.items()}
    metadata["METADATA"] = _metadata(names, served, built, list(licenses))
    return write_wheel(names, tag, files, metadata, Path(output_dir))


def _is_portable(operator: "Operator") -> bool:
    """Whether the kernels run on every processor of their kind, as far as the definition says."""
    options = operator.options
    return options.march is None and not any(flag.startswith("-m") for flag in options.flags)


def _module(names: Names, file: Path, operators: "Sequence[Operator]", built: Sequence[_Built]) -> bytes:
    return _render(
        "package.py.j2",
        names=names,
        file=file.name,
        oneop_version=oneop.__version__,
        operators=[operator.definition for operator in operators],
        libraries={item.target: f"{_FOLDER}/{item.path.name}" for item in built},
        default=built[0].target,
    )


def _metadata(names: Names, operators: "Sequence[Operator]", built: Sequence[_Built], licenses: list[str]) -> bytes:
    return _render(
        "METADATA.j2",
        names=names,
        python=_PYTHON,
        operators=[operator.definition for operator in operators],
        requirements=[item.requirement.text for item in built if item.requirement is not None],
        targets=[item.target for item in built],
        licenses=licenses,
        machine=platform.machine(),
    )


def _render(template: str, **values: object) -> bytes:
    environment = Environment(
        loader=PackageLoader("oneop.packaging"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(template).render(**values).encode()


def _licenses(given: str | Path | None) -> dict[str, bytes]:
    """By file name. oneop's is that of its installed metadata."""
    own = importlib.metadata.distribution("oneop").read_text("licenses/LICENSE")
    if own is None:
        raise BuildError(
            "oneop's own license is not where it was installed, and a package has to carry it. Install oneop again."
        )
    licenses = {"LICENSE-oneop": own.encode()}
    if given is not None:
        try:
            licenses[Path(given).name] = Path(given).read_bytes()
        except OSError as error:
            raise BuildError(
                f"the license {given} cannot be read: {error.strerror}. Pass --license a text file."
            ) from error
    return licenses
