"""The operator as its user holds it: made by ``@oneop.op``, called like a function."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from oneop import registry
from oneop.definition import dtypes as dtype_table
from oneop.definition.attributes import REQUIRED
from oneop.definition.gradient import gradient_definition
from oneop.definition.record import Definition, Layout
from oneop.definition.signature import check_name, definition_of, output_type_of
from oneop.errors import CallError, DefinitionError
from oneop.kernels.spec import DEVICES, Device, KernelOptions, KernelSpec, device_of
from oneop.targets.pytorch import exported, native, registration, scalars
from oneop.targets.pytorch.autocast import POLICIES
from oneop.targets.pytorch.inputs import check_attribute, tensors_of
from oneop.targets.pytorch.releases import is_exporting
from oneop.targets.pytorch.schema import schema_has_default
from oneop.targets.pytorch.sharding import Words, words_of


class Operator:
    """A PyTorch operator with one definition, from which every other copy is derived.

    Call it with its inputs in order and its attributes as keywords; it goes through ``torch.ops.<namespace>.<base>``.
    An operator with kernels is built at its first call.
    """

    def __init__(
        self,
        definition: Definition,
        function: Callable[..., Any],
        *,
        kernels: Sequence[Path] = (),
        options: KernelOptions | None = None,
        output_type: type | None = None,
        defined_in: str | None = None,
        parameters: Sequence[str] | None = None,
        autocast: str = "promote",
        inline: bool = False,
        sharding: Words | None = None,
    ) -> None:
        self.definition = definition
        self.reference = function
        self.kernels = tuple(kernels)
        self.options = options or KernelOptions()
        self.output_type = output_type
        self.autocast = autocast
        self.inline = inline
        self.sharding = sharding or Words()
        self.examples: list[Callable[[], Any]] = []
        self.constraints: dict[str, str] = {}
        self.gradient_operator: Operator | None = None
        self.defined_in = defined_in or _file_of(function)
        self.__name__ = definition.base
        self.__module__ = function.__module__
        self.__doc__ = definition.doc
        self.__wrapped__ = function
        self._named = frozenset(parameters or inspect.signature(function).parameters)
        self.float_attributes = scalars.float_attributes(definition)
        self._zeros = frozenset(
            item.name
            for item in definition.attributes
            if item.kind.element is float and schema_has_default(item) and item.default is not None
        )
        self._unsaid = {
            item.name: list(item.default) if isinstance(item.default, tuple) else item.default
            for item in definition.attributes
            if not item.is_required and not schema_has_default(item)
        }
        for device in self.devices:
            self.kernel_spec(device).combinations()
        with registry.lock:
            registry.check(self)
            registration.register(self)
            registry.add(self)
        self.torch_op = registration.torch_operator(definition)
        self.torch_reference = registration.torch_operator(definition, f"{definition.base}_reference")
        self._call: Callable[..., Any] = self._first_call if self.kernels else self.call_torch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._traced(*args, **kwargs)
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<oneop.Operator {self.definition.name}>"

    def __reduce__(self) -> tuple[Callable[[str, str], "Operator"], tuple[str, str]]:
        return _restore, (self.defined_in, self.definition.name)

    @property
    def has_kernels(self) -> bool:
        return bool(self.kernels)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where the operator has kernels: ``"cpu"`` (C and C++ sources), ``"cuda"`` (.cu sources), both or none."""
        found = {device_of(source, self.definition) for source in self.kernels}
        return tuple(device for device in DEVICES if device in found)

    def kernel_spec(self, device: Device = "cpu") -> KernelSpec:
        """What the builder needs to know of the operator's kernels on one device.

        Where it has none there, the spec has no sources: a library with it knows the operator, and no kernel.
        """
        sources = tuple(source for source in self.kernels if device_of(source, self.definition) == device)
        return KernelSpec(self.definition, sources, self.options, device)

    def gradient(
        self,
        function: Callable[..., Any] | None = None,
        *,
        kernels: Sequence[str | Path] = (),
        dtypes: Sequence[str] | None = None,
        flags: Sequence[str] = (),
        include_dirs: Sequence[str | Path] = (),
        libraries: Sequence[str] = (),
        march: str | None = None,
        cuda_flags: Sequence[str] = (),
        cuda_architectures: Sequence[str] | None = None,
    ) -> Any:
        """Decorates the function that computes the operator's gradient, and makes it the operator ``<name>_grad``.

        The function takes the gradient of the output (``grad``; with several outputs ``grad_<output>`` for each
        floating one), the inputs, those of the outputs that it names, and as keywords the attributes. It returns one
        value an input, None where there is no gradient. If it takes the keyword ``needs``, an int, bit ``i`` of that
        says whether input ``i``'s gradient is asked for.
        """
        if self.definition.is_gradient:
            raise DefinitionError(
                f"{self.definition.name} is a gradient itself. Its own gradient is derived from its body; remove"
                " `.gradient`."
            )
        if self.inline:
            raise DefinitionError(
                f"{self.definition.name}: inline=True shows torch.compile the reference, whose gradient is derived, and"
                " `.gradient` might differ from that. Remove one of the two."
            )

        def decorate(function: Callable[..., Any]) -> Operator:
            options = _options(
                self.definition.name,
                function,
                dtypes,
                flags,
                include_dirs,
                libraries,
                march,
                cuda_flags,
                cuda_architectures,
            )
            definition = gradient_definition(self.definition, function)
            sources = _kernel_paths(definition.name, function, kernels)
            with registry.lock:
                self.gradient_operator = Operator(
                    definition,
                    function,
                    kernels=sources,
                    options=options,
                    defined_in=self.defined_in,
                    autocast=self.autocast,
                )
                registration.register(self)
            return self.gradient_operator

        return decorate if function is None else decorate(function)

    def example(self, function: Callable[[], Any] | None = None, /, **constraints: str) -> Any:
        """Decorates a function that returns a call of the operator, which ``oneop check`` then looks at too.

        The function returns the inputs in order, and behind them a dict of attributes if there are any. The keywords
        say what the values of an input, of an attribute or of a dimension have to satisfy wherever calls are made up:
        comparisons with the name in them, and ``positive``, ``nonnegative``, ``nonzero``, ``finite``, ``sorted`` and
        ``unique``, with commas between. They count as soon as ``example`` is called, with or without a function.

        Raises DefinitionError where a constraint cannot be read.

        >>> import oneop, torch
        >>> from jaxtyping import Float, Int
        >>> from torch import Tensor
        >>> @oneop.op("readme::pick")
        ... def pick(x: Float[Tensor, "n m"], index: Int[Tensor, "k"]) -> Float[Tensor, "k m"]:
        ...     return x[index.long()]
        >>> @pick.example(index="0 <= index < n")
        ... def twice_the_last_row():
        ...     return torch.randn(4, 2), torch.tensor([3, 3])
        """
        from oneop.check.constraints import Constraints

        Constraints(self.definition).add(constraints)
        for name, text in constraints.items():
            known = self.constraints.get(name)
            self.constraints[name] = text if known in (None, text) else f"{known}, {text}"

        def decorate(function: Callable[[], Any]) -> Callable[[], Any]:
            self.examples.append(function)
            return function

        return decorate if function is None else decorate(function)

    def call_reference(self, *inputs: Any, **attributes: Any) -> Any:
        """Calls the reference with the attributes that it takes: a gradient function may leave some out."""
        return self.reference(*inputs, **{name: value for name, value in attributes.items() if name in self._named})

    def call_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Calls through torch's dispatcher, after checks that explain themselves."""
        inputs, attributes = self._arguments(args, kwargs)
        return self._typed(self.torch_op(*inputs, **attributes))

    def _first_call(self, *args: Any, **kwargs: Any) -> Any:
        self._call = native.prepare(self)
        return self._call(*args, **kwargs)

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        given = {**self._unsaid, **kwargs}
        if is_exporting():
            for name, value in kwargs.items():
                if name in self._zeros:
                    check_attribute(self.definition, name, value)
            return self._typed(exported.call(self, args, given))
        return self._typed(scalars.call(self, args, given))

    def _typed(self, result: Any) -> Any:
        return (
            result
            if self.output_type is None
            else self.output_type(*(result if isinstance(result, tuple | list) else (result,)))
        )

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        definition = self.definition
        if len(args) > len(definition.inputs):
            raise CallError(
                f"{definition.name}: {len(args)} positional arguments were given; there are {len(definition.inputs)}"
                f" inputs ({', '.join(item.name for item in definition.inputs)}). Pass attributes by name."
            )
        rest = dict(kwargs)
        inputs: list[Any] = list(args)
        for position, item in enumerate(definition.inputs):
            if position < len(args):
                if item.name in rest:
                    raise CallError(f"{definition.name}: input `{item.name}` was given twice. Pass it once.")
            elif item.name in rest or item.has_default:
                inputs.append(rest.pop(item.name, None))
            else:
                raise CallError(f"{definition.name}: input `{item.name}` is missing. The call is {self._usage()}.")
            tensors_of(definition, item, inputs[position])
        return inputs, self._attributes(rest)

    def _attributes(self, given: dict[str, Any]) -> dict[str, Any]:
        definition = self.definition
        attributes: dict[str, Any] = {}
        for item in definition.attributes:
            if item.name in given:
                attributes[item.name] = check_attribute(definition, item.name, given.pop(item.name))
            elif item.is_required:
                raise CallError(f"{definition.name}: attribute `{item.name}` is missing. The call is {self._usage()}.")
            else:
                attributes[item.name] = list(item.default) if isinstance(item.default, tuple) else item.default
        if given:
            raise CallError(
                f"{definition.name}: there is no parameter `{next(iter(given))}`. The call is {self._usage()}."
            )
        return attributes

    def _usage(self) -> str:
        definition = self.definition
        inputs = [item.name + ("=None" if item.has_default else "") for item in definition.inputs]
        attributes = [
            item.name + ("" if item.default is REQUIRED else f"={item.default!r}") for item in definition.attributes
        ]
        return f"`{definition.base}({', '.join([*inputs, *(['*'] if attributes else []), *attributes])})`"


def op(
    name: str,
    *,
    kernels: Sequence[str | Path] = (),
    onnx_name: str | None = None,
    layout: Layout = "contiguous",
    native_only: bool = False,
    dtypes: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    include_dirs: Sequence[str | Path] = (),
    libraries: Sequence[str] = (),
    march: str | None = None,
    cuda_flags: Sequence[str] = (),
    cuda_architectures: Sequence[str] | None = None,
    autocast: str = "promote",
    inline: bool = False,
    independent: Sequence[str] = (),
    summed: Mapping[str, str | Sequence[str]] | Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Operator]:
    """Decorates an annotated function, the reference, and makes it the operator ``name`` (``"namespace::base"``).

    Args:
        kernels: C, C++ and CUDA (.cu) sources, relative to the file of the function. The first of each device holds its
            kernel function. Without any for the device of a call, the operator runs its reference.
        onnx_name: the ONNX operator type; ``ScaledLinear`` for ``scaled_linear`` if not given.
        layout: ``"contiguous"`` inputs for the kernels (copies are made where needed), or ``"strided"`` as they are.
        native_only: the function has no body; there is no reference.
        dtypes: those that the kernels are written for; all that the annotations admit but float16 and bfloat16 if not
            given. Other dtypes run the reference.
        flags, include_dirs, libraries: for the compiler and linker. ``march="native"`` builds for this machine only.
        cuda_flags: for nvcc alone, such as ``["--use_fast_math"]``.
        cuda_architectures: the GPUs that CUDA kernels are compiled for, ``["80", "90"]``; all that are in use, from 75
            on, if not given. ``$ONEOP_CUDA_ARCHITECTURES`` overrides it.
        autocast: what ``torch.autocast`` does with float16, bfloat16 and float32 inputs that share a dtype variable:
            ``"promote"`` to the widest that is given, ``"lower"`` to autocast's dtype, or ``"float32"``.
        inline: without kernels only; ``torch.compile`` sees the reference instead of one opaque operator, and may fuse
            it.
        independent: dimensions along which DTensors may be split, because the operator of a slice is that slice of the
            result. ``*batch`` needs no word.
        summed: contracted dimensions along which they may be split, because the results of slices add up to the whole;
            ``{"k": "bias"}`` if ``bias`` is added once, and so must be split into summands. Words are checked with
            random numbers when the first DTensor comes; ``oneop.verify_sharding`` does so with yours.

    Raises DefinitionError where the signature cannot be an operator.

    >>> import oneop, torch
    >>> from jaxtyping import Float
    >>> from torch import Tensor
    >>> @oneop.op("readme::scale")
    ... def scale(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    ...     return alpha * x
    >>> scale(torch.ones(2), alpha=3.0)
    tensor([3., 3.])
    """

    check_name(name)

    def decorate(function: Callable[..., Any]) -> Operator:
        scope = sys._getframe(1).f_locals
        definition = definition_of(
            function, name, onnx_name=onnx_name, layout=layout, native_only=native_only, scope=scope
        )
        if native_only and not kernels:
            raise DefinitionError(
                f"{name}: native_only=True says that there is no reference, and there are no kernels. Give"
                " kernels=[...]."
            )
        if autocast not in POLICIES:
            raise DefinitionError(
                f"{name}: autocast={autocast!r} is not known. Write one of {', '.join(map(repr, POLICIES))}."
            )
        if inline and kernels:
            raise DefinitionError(f"{name}: inline=True is for operators without kernels. Remove it, or the kernels.")
        options = _options(
            name, function, dtypes, flags, include_dirs, libraries, march, cuda_flags, cuda_architectures
        )
        sources = _kernel_paths(name, function, kernels)
        return Operator(
            definition,
            function,
            kernels=sources,
            options=options,
            output_type=output_type_of(function, scope),
            autocast=autocast,
            inline=inline,
            sharding=words_of(definition, independent, summed),
        )

    return decorate


def _options(
    name: str,
    function: Callable[..., Any],
    dtypes: Sequence[str] | None,
    flags: Sequence[str],
    include_dirs: Sequence[str | Path],
    libraries: Sequence[str],
    march: str | None,
    cuda_flags: Sequence[str],
    cuda_architectures: Sequence[str] | None,
) -> KernelOptions:
    lists = {
        "dtypes": dtypes,
        "flags": flags,
        "include_dirs": include_dirs,
        "libraries": libraries,
        "cuda_flags": cuda_flags,
        "cuda_architectures": cuda_architectures,
    }
    for word, value in lists.items():
        if isinstance(value, str | Path):
            raise DefinitionError(f"{name}: {word} is {str(value)!r}; it is a list. Write {word}=[{str(value)!r}].")
    for dtype in dtypes or ():
        if dtype not in dtype_table.BY_NAME:
            raise DefinitionError(
                f"{name}: dtypes names {dtype!r}, which oneop does not know. It knows {', '.join(dtype_table.BY_NAME)}."
            )
    folder = _folder_of(function)
    return KernelOptions(
        dtypes=None if dtypes is None else tuple(dtype_table.BY_NAME[dtype] for dtype in dtypes),
        flags=tuple(flags),
        include_dirs=tuple(folder / path for path in include_dirs),
        libraries=tuple(libraries),
        march=march,
        cuda_flags=tuple(cuda_flags),
        cuda_architectures=None if cuda_architectures is None else tuple(map(str, cuda_architectures)),
    )


def _kernel_paths(name: str, function: Callable[..., Any], kernels: Sequence[str | Path]) -> tuple[Path, ...]:
    if isinstance(kernels, str | Path):
        raise DefinitionError(
            f"{name}: kernels is {str(kernels)!r}; it is a list of files. Write kernels=[{str(kernels)!r}]."
        )
    # They need not exist yet: `oneop headers` writes what they include. The builder says so where one is missing.
    return tuple((_folder_of(function) / path).resolve() for path in kernels)


def _file_of(function: Callable[..., Any]) -> str:
    file = function.__code__.co_filename
    return str(Path(file).resolve()) if Path(file).is_file() else file


def _folder_of(function: Callable[..., Any]) -> Path:
    """Where kernel files are looked for: beside the file of the function; in a notebook, the working folder."""
    file = Path(function.__code__.co_filename)
    return file.resolve().parent if file.is_file() else Path.cwd()


def _restore(defined_in: str, name: str) -> Operator:
    if name not in registry.operators():
        registry.load_file(defined_in)
    return registry.operators()[name]
