"""Names that a definition cannot use: keywords, what generated code needs, and namespaces that are taken."""

import keyword

C_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
    typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq errno NULL EOF
    INFINITY NAN main linux unix assert
    """.split()  # noqa: SIM905
)
"""Keywords of C11, C++17 and later, and macros of the standard headers that generated code includes."""

RESERVED_NAMES = frozenset(keyword.kwlist) | {"self", "cls"}
"""Names with a meaning in Python, where attributes and outputs are keywords and fields."""

TAKEN_NAMESPACES = {
    "aten": "PyTorch",
    "prim": "PyTorch",
    "prims": "PyTorch",
    "torch": "PyTorch",
    "c10": "PyTorch",
    "c10d": "PyTorch",
    "onnx": "ONNX",
    "ai": "ONNX",
    "std": "C++",
    "oneop": "oneop",
}
