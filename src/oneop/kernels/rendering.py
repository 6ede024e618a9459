"""Renders C and C++ from templates that read like the result."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from oneop.kernels.literals import c_string

if TYPE_CHECKING:
    import jinja2


def render(folder: Path, template: str, **values: object) -> str:
    """The template of that name in a folder, with these values."""
    return _environment(folder).get_template(template).render(**values)


@cache
def _environment(folder: Path) -> "jinja2.Environment":
    import jinja2  # not at the top: `import oneop` stays quick

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["c_string"] = c_string
    return environment
