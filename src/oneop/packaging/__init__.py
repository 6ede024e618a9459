"""Native libraries as what a service installs: a wheel without a compiler in it, or a model repository for Triton.

The wheel needs its runtime only: neither torch nor oneop.
"""

from oneop.packaging.packages import package
from oneop.packaging.triton import model_repository

__all__ = ["model_repository", "package"]
