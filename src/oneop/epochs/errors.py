"""What `oneop.epochs` refuses, and says why."""

from oneop.errors import OneopError


class WatchError(OneopError, RuntimeError):
    """A training loop cannot be watched as it was asked for."""


class WatchWarning(UserWarning):
    """The training ended, and there is nothing to show."""
