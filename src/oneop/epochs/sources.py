"""The line of a user's file that fills a variable, sets an attribute or registers a hook, found in its source."""

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from oneop.epochs.records import Place

_FILLING = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"})
_GROWS, _STORES, _SETS = 3, 2, 1
"""What a line does to a name: makes it longer, puts something into it, or gives it a value."""


def filling_line(file: str, name: str, *, attribute: bool, code: CodeType | None = None) -> tuple[int, str] | None:
    """The line that makes ``name`` (``.name`` if it is an attribute) hold ever more; else one that sets it.

    ``code``: look inside this function only.
    """
    found = _ranked(file, name, attribute, code)
    return found[1:] if found else None


def best_line(files: Sequence[str], attribute: str) -> tuple[str | None, tuple[int, str] | None]:
    """The line, of several files, that does most to an attribute; of the first file, where several do as much."""
    found = [(file, ranked) for file in files if (ranked := _ranked(file, attribute, True, None))]
    if not found:
        return (files[0] if files else None), None
    file, ranked = max(found, key=lambda entry: entry[1][0])
    return file, ranked[1:]


def _ranked(file: str, name: str, attribute: bool, code: CodeType | None) -> tuple[int, int, str] | None:
    tree = _parsed(file)
    if tree is None:
        return None
    first, last = _extent(code) if code is not None and code.co_name != "<module>" else (1, 1 << 30)
    found = [
        (rank, line)
        for node in ast.walk(tree)
        for rank, line in _effects(node, name, attribute)
        if first <= line <= last
    ]
    if not found:
        return None
    best = max(rank for rank, _ in found)
    line = min(line for rank, line in found if rank == best)
    return best, line, _text(file, line)


def context_line(function: type, attribute: str) -> Place:
    """The line of a ``torch.autograd.Function`` that sets ``ctx.<attribute>``."""
    owner = f"{function.__qualname__}: ctx.{attribute}"
    for method in ("forward", "setup_context"):
        code = getattr(inspect.unwrap(getattr(function, method, None) or function), "__code__", None)
        if code is None:
            continue
        found = filling_line(code.co_filename, attribute, attribute=True, code=code)
        if found is not None:
            return Place(attribute, owner, code.co_filename, *found)
    return Place(attribute, owner)


def hook_line(hook: Callable[..., Any], owner: str, module: str | None) -> Place:
    """Where a hook is registered, or where it is defined if that cannot be found."""
    plain: Any = hook
    while hasattr(plain, "func") or hasattr(plain, "__func__"):
        plain = getattr(plain, "func", None) or plain.__func__
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    name = getattr(plain, "__qualname__", type(plain).__qualname__)
    if code is None:
        return Place(name, owner, module=module)
    line = _registration(code.co_filename, getattr(plain, "__name__", name)) or code.co_firstlineno
    return Place(name, owner, code.co_filename, line, _text(code.co_filename, line), module)


def _effects(node: ast.AST, name: str, attribute: bool) -> Iterator[tuple[int, int]]:
    """What one node of the tree does to the name: rank and line."""

    def is_it(target: ast.AST) -> bool:
        while isinstance(target, ast.Subscript):  # metrics["loss"].append(...)
            target = target.value
        if attribute:
            return isinstance(target, ast.Attribute) and target.attr == name
        return isinstance(target, ast.Name) and target.id == name

    match node:
        case ast.Call(func=ast.Attribute(value=target, attr=method)) if is_it(target) and method in _FILLING:
            yield _GROWS, node.lineno
        case ast.AugAssign(target=target) if is_it(target):
            yield _GROWS, node.lineno
        case ast.Assign(targets=targets, value=value):
            flat = [item for target in targets for item in (target.elts if isinstance(target, ast.Tuple) else [target])]
            mine = [target for target in flat if is_it(target)]
            if any(isinstance(target, ast.Subscript) for target in mine):
                yield _STORES, node.lineno
            elif mine:
                yield (_GROWS if any(is_it(inner) for inner in ast.walk(value)) else _SETS), node.lineno
        case ast.AnnAssign(target=target) if is_it(target):
            yield _SETS, node.lineno


def _registration(file: str, name: str) -> int | None:
    tree = _parsed(file)
    for node in ast.walk(tree) if tree is not None else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.startswith("register_")
        ):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                named = getattr(argument, "id", None) or getattr(argument, "attr", None)
                if named == name:
                    return node.lineno
    return None


def _extent(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_firstlineno, max(lines, default=code.co_firstlineno)


def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
