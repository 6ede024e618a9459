"""The errors a user can meet. Each message says what happened, where, and what to do."""


class OneopError(Exception):
    """Base class of every error that oneop raises on purpose."""


class DefinitionError(OneopError, TypeError):
    """The signature of an operator, or of its gradient, says something oneop cannot express."""


class CallError(OneopError, RuntimeError):
    """A call does not fit the operator's definition, or its kernel failed."""


class BuildError(OneopError, RuntimeError):
    """A library could not be built, found, locked or loaded."""


class ExportError(OneopError, RuntimeError):
    """A model could not be written for another runtime, or a runtime could not take it."""
