"""float16 and bfloat16 of oneop.h and oneop.hpp: every value, every boundary between two values, in both languages."""

import ctypes
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch

from oneop.kernels.building import Library, Unit, build
from oneop.kernels.inputs import INCLUDE

C = """
#include "oneop.h"
#define ARRAYS(NAME, TYPE) \\
  ONEOP_EXPORT void NAME##_widen(const uint16_t *from, float *to, int64_t n); \\
  void NAME##_widen(const uint16_t *from, float *to, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) { \\
      TYPE value; \\
      value.bits = from[i]; \\
      to[i] = TYPE##_to_float(value); \\
    } \\
  } \\
  ONEOP_EXPORT void NAME##_from_float(const float *from, uint16_t *to, int64_t n); \\
  void NAME##_from_float(const float *from, uint16_t *to, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) to[i] = TYPE##_from_float(from[i]).bits; \\
  } \\
  ONEOP_EXPORT void NAME##_from_double(const double *from, uint16_t *to, int64_t n); \\
  void NAME##_from_double(const double *from, uint16_t *to, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) to[i] = TYPE##_from_double(from[i]).bits; \\
  }
ARRAYS(float16, oneop_float16)
ARRAYS(bfloat16, oneop_bfloat16)
"""

CPP = """
#include "oneop.hpp"
template <class Half, class From> static void narrow(const From *from, uint16_t *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const Half value = from[i];
    to[i] = value.bits();
  }
}
template <class Half> static Half arithmetic(Half a, Half b) {
  Half result = a * b;
  result += 1;
  result -= b;
  result *= 0.5;
  result /= Half(4.0f);
  if (a < b || a == 0) result = -result;
  return result;
}
template <class Half> static void limits(double *to) {
  using Limits = std::numeric_limits<Half>;
  const Half values[] = {Limits::min(), Limits::lowest(), Limits::max(), Limits::epsilon(), Limits::denorm_min()};
  for (const Half value : values) *to++ = value;
  *to++ = Limits::infinity();
  *to++ = Limits::quiet_NaN();
}
#define ARRAYS(NAME) \\
  ONEOP_EXPORT void NAME##_widen(const uint16_t *from, float *to, int64_t n) { \\
    for (int64_t i = 0; i < n; ++i) to[i] = oneop::NAME::from_bits(from[i]); \\
  } \\
  ONEOP_EXPORT void NAME##_from_float(const float *from, uint16_t *to, int64_t n) { \\
    narrow<oneop::NAME>(from, to, n); \\
  } \\
  ONEOP_EXPORT void NAME##_from_double(const double *from, uint16_t *to, int64_t n) { \\
    narrow<oneop::NAME>(from, to, n); \\
  } \\
  ONEOP_EXPORT void NAME##_from_int64(const int64_t *from, uint16_t *to, int64_t n) { \\
    narrow<oneop::NAME>(from, to, n); \\
  } \\
  ONEOP_EXPORT void NAME##_from_uint64(const uint64_t *from, uint16_t *to, int64_t n) { \\
    narrow<oneop::NAME>(from, to, n); \\
  } \\
  ONEOP_EXPORT float NAME##_arithmetic(float a, float b) { \\
    return arithmetic<oneop::NAME>(oneop::NAME(a), oneop::NAME(b)); \\
  } \\
  ONEOP_EXPORT void NAME##_limits(double *to) { limits<oneop::NAME>(to); }
extern "C" {
ARRAYS(float16)
ARRAYS(bfloat16)
}
"""


@cache
def library(language: str) -> ctypes.CDLL:
    unit = Unit("halves", language, CPP if language == "c++" else C)
    flags = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
    return ctypes.CDLL(str(build(Library("halves", "halves", (unit,), include_dirs=(INCLUDE,), flags=flags))))


def convert(language: str, function: str, values: np.ndarray, dtype: str) -> np.ndarray:
    result = np.empty(len(values), dtype)
    values = np.ascontiguousarray(values)
    getattr(library(language), function)(
        ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(result.ctypes.data), ctypes.c_int64(len(values))
    )
    return result


MANTISSA = {"float16": 10, "bfloat16": 7}
ALL_BITS = np.arange(2**16, dtype="uint16")


def wide(name: str) -> np.ndarray:
    """All 65536 values, by numpy and torch."""
    if name == "float16":
        return ALL_BITS.view("float16").astype("float64")
    return torch.from_numpy(ALL_BITS.view("int16")).view(torch.bfloat16).to(torch.float64).numpy()


def ladder(name: str) -> np.ndarray:
    """The values from 0 up, by their bits, and the one that would follow if infinity were finite."""
    infinity = 0x7C00 if name == "float16" else 0x7F80
    finite = wide(name)[:infinity]
    return np.append(finite, 2 * finite[-1] - finite[-2])


def nearest(name: str, values: np.ndarray) -> np.ndarray:
    """The bits of the nearest value, ties to even, from the definition: boundaries between values are exact doubles."""
    steps = ladder(name)
    boundaries = (steps[1:] + steps[:-1]) / 2
    magnitude = np.abs(values)
    below = np.searchsorted(boundaries, magnitude, side="left")
    tie = (below < len(boundaries)) & (boundaries[np.minimum(below, len(boundaries) - 1)] == magnitude)
    bits = below + (tie & (below % 2 == 1))
    return (bits | np.where(np.signbit(values), 0x8000, 0)).astype("uint16")


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_value_becomes_the_same_float(language: str, name: str) -> None:
    found = convert(language, f"{name}_widen", ALL_BITS, "float32")
    with np.errstate(invalid="ignore"):  # numpy warns of signalling NaNs
        wanted = wide(name).astype("float32")
    np.testing.assert_array_equal(found, wanted)
    real = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float", "double"])
def test_every_boundary_rounds_to_the_nearest(language: str, name: str, source: str) -> None:
    dtype = {"float": "float32", "double": "float64"}[source]
    steps = ladder(name)
    with np.errstate(over="ignore"):  # the step above the largest bfloat16 is infinity as a float
        boundaries = np.concatenate([steps, (steps[1:] + steps[:-1]) / 2]).astype(dtype)
    around = [
        boundaries,
        np.nextafter(boundaries, dtype_of(0, dtype)),
        np.nextafter(boundaries, dtype_of(np.inf, dtype)),
    ]
    random = np.random.default_rng(3).integers(0, 2**63, 200_000, dtype="uint64")
    noise = (random if source == "double" else (random >> 32).astype("uint32")).view(dtype)
    values = np.concatenate([*around, noise[np.isfinite(noise)], [dtype_of(np.inf, dtype)]]).astype(dtype)
    values = np.concatenate([values, -values])
    found = convert(language, f"{name}_from_{source}", values, "uint16")
    np.testing.assert_array_equal(found, nearest(name, values.astype("float64")))


def dtype_of(value: float, dtype: str) -> np.generic:
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("source", "bits"), [("float", "uint32"), ("double", "uint64")])
def test_nan_stays_nan(language: str, name: str, source: str, bits: str) -> None:
    dtype = {"float": "float32", "double": "float64"}[source]
    patterns = {"uint32": [0x7F800001, 0xFFC00000, 0x7FFFFFFF], "uint64": [2**52 * 0x7FF + 1, 2**64 - 1]}[bits]
    found = convert(language, f"{name}_from_{source}", np.array(patterns, bits).view(dtype), "uint16")
    assert np.isnan(convert(language, f"{name}_widen", found, "float32")).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_are_rounded_once(name: str, dtype: str) -> None:
    near = [2**k + 2 ** max(k - MANTISSA[name] - 1, 0) + d for k in range(1, 63) for d in range(-3, 4)]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [value for value in (*near, *(-value for value in near), 0, low, high) if low <= value <= high]
    found = convert("c++", f"{name}_from_{dtype}", np.array(values, dtype), "uint16")
    steps = [Fraction(float(step)) for step in ladder(name)]
    for value, bits in zip(values, found.tolist(), strict=True):
        assert bits == exactly_nearest(value, steps), value


def exactly_nearest(value: int, steps: list[Fraction]) -> int:
    low, high = 0, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if steps[middle] <= abs(value) else (low, middle)
    below, above = abs(value) - steps[low], steps[high] - abs(value)
    bits = low if (below, low % 2) < (above, high % 2) else high
    return bits | (0x8000 if value < 0 else 0)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_arithmetic_rounds_after_each_assignment(name: str) -> None:
    function = getattr(library("c++"), f"{name}_arithmetic")
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float, ctypes.c_float]
    dtype = getattr(torch, name)
    for a, b in [(1.7, 3.3), (0.0, 2.0), (-5.0, 0.25), (100.0, 0.001), (3.0, 1.0)]:
        x, y = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
        result = x * y
        result = result + 1
        result = result - y
        result = (result.double() * 0.5).to(dtype)
        result = result / 4
        wanted = -result if bool(x < y) or bool(x == 0) else result
        assert function(a, b) == wanted.item()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_limits(name: str) -> None:
    found = np.empty(7, "float64")
    library("c++")[f"{name}_limits"](ctypes.c_void_p(found.ctypes.data))
    info = torch.finfo(getattr(torch, name))
    smallest = wide(name)[1]
    assert found[:5].tolist() == [info.tiny, info.min, info.max, info.eps, smallest]
    assert found[5] == np.inf
    assert np.isnan(found[6])
