"""oneop package: a wheel with the built libraries, for services that have no compiler; or a repository for Triton."""

from pathlib import Path
from typing import Annotated

import typer

from oneop.cli.definitions import DefinitionFile, operators_of
from oneop.cli.failures import reported, require_folder, stop

EXAMPLES = (
    "Example: oneop package scaled_linear.py --target onnxruntime --target openvino --output dist"
    "  Or, for Triton Inference Server: oneop package scaled_linear.py --triton models --model model.onnx"
)

_MOUNT = "/models"


def command(
    file: DefinitionFile,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="A runtime that will load it; may be repeated. onnxruntime if not given."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the package, or of the model in Triton.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Of the package; 0.1.0 if not given.")] = None,
    license_file: Annotated[
        Path | None, typer.Option("--license", help="The license of your kernels, a text file.")
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder for the wheel; made if missing.")] = "dist",
    triton: Annotated[
        str | None, typer.Option("--triton", help="Write --model into this model repository, in place of a wheel.")
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", help="The ONNX file for --triton.")] = None,
    max_batch_size: Annotated[
        int, typer.Option("--max-batch-size", help="For --triton: let it make batches of up to that many.")
    ] = 0,
    mount: Annotated[
        str, typer.Option("--mount", help="For --triton: the folder in which the server sees the repository.")
    ] = _MOUNT,
) -> None:
    """Package the kernels of FILE for a service without a compiler, and print the path of the wheel."""
    require_folder("--output", output)
    _check_options(triton, model, target, version, license_file, max_batch_size, mount)
    operators_of(file)
    from oneop.packaging import model_repository, package

    with reported():
        if triton is not None and model is not None:
            made = model_repository(file, model, triton, name=name, max_batch_size=max_batch_size, mount=mount)
        else:
            made = package(
                file,
                output,
                targets=target or ["onnxruntime"],
                name=name,
                version=version or "0.1.0",
                license_file=license_file,
            )
    typer.echo(made)


def _check_options(
    triton: str | None,
    model: Path | None,
    target: list[str] | None,
    version: str | None,
    license_file: Path | None,
    max_batch_size: int,
    mount: str,
) -> None:
    if triton is None:
        if model is not None:
            raise stop("--model is for --triton DIR, the model repository to write it to. Pass both, or neither.")
        if max_batch_size != 0 or mount != _MOUNT:
            raise stop("--max-batch-size and --mount are for --triton DIR. Leave them out, or pass it with --model.")
        return
    require_folder("--triton", triton)
    if model is None:
        raise stop("--triton needs --model MODEL.onnx, the model that the server will run.")
    if target not in (None, ["onnxruntime"]):
        raise stop(f"--triton is for onnxruntime, and --target is {', '.join(target or [])}. Leave --target out.")
    if version is not None or license_file is not None:
        raise stop("--version and --license are for wheels. Leave them out with --triton.")
