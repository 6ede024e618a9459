"""The seeded faults: each a small change to a correct operator, and the row of `oneop check` that has to catch it."""

from dataclasses import dataclass
from typing import Literal

Way = Literal["check", "kernel", "address", "thread"]
"""How the row is asked: in this process; by the driver outside Python; by that with a sanitizer."""


@dataclass(frozen=True)
class Fault:
    """``edits`` are pairs of text: the first stands once in ``file``, a file of the operator's, and becomes the second.

    ``column`` is where the row has to fail; None stands for any of its columns.
    """

    title: str
    operator: str
    file: str
    edits: tuple[tuple[str, str], ...]
    row: str
    way: Way = "check"
    column: str | None = "PyTorch eager"
    more: tuple[tuple[str, str, str], ...] = ()  # (file, text, text): edits of another file


def kernel(title: str, operator: str, file: str, before: str, after: str, row: str) -> Fault:
    return Fault(title, operator, file, ((before, after),), row, "kernel", None)


def sanitized(title: str, operator: str, file: str, before: str, after: str, way: Way) -> Fault:
    row = ADDRESS if way == "address" else RACES
    return Fault(title, operator, file, ((before, after),), row, way, None)


def checked(
    title: str, operator: str, file: str, before: str, after: str, row: str, column: str | None = "PyTorch eager"
) -> Fault:
    return Fault(title, operator, file, ((before, after),), row, "check", column)


VALUES = "values"
FIRST = "first gradient"
SECOND = "second gradient"
FORWARD = "forward mode"
VMAP = "vmap"
FAKE = "fake shapes"
ALIASING = "no aliasing"
MUTATION = "no mutation of inputs"
DETERMINISM = "determinism"
OBJECTS = "memory"
STRAY = "stray writes"
INPUTS = "inputs unchanged"
UNINITIALISED = "uninitialised memory"
THREADS = "threads"
CALLERS = "concurrent callers"
MEMORY = "memory"
CRASHES = "crashes"
ADDRESS = "AddressSanitizer, UndefinedBehaviorSanitizer"
RACES = "ThreadSanitizer"

FAULTS: tuple[Fault, ...] = (
    # ---- kernel arithmetic
    checked("a factor is dropped", "linear", "linear.cpp", "= alpha * sum + (", "= sum + (", VALUES),
    checked("the wrong one of two transpositions", "linear", "linear.cpp", "a.x(i, p) * a.weight(j, p);\n        a.out", "a.x(i, p) * a.weight.data[p * a.m + j];\n        a.out", VALUES),
    checked("the last term of a sum is left out", "linear", "linear.cpp", "for (std::int64_t p = 0; p < a.k; ++p)\n          sum +=", "for (std::int64_t p = 0; p + 1 < a.k; ++p)\n          sum +=", VALUES),
    checked("the largest is not taken off before exp", "softmax", "softmax.cpp", "std::exp(row[i] - largest)", "std::exp(row[i])", VALUES),
    checked("a NaN is not the largest", "moments", "moments.c", "x[j] > x[largest] || (x[j] != x[j] && x[largest] == x[largest])", "x[j] > x[largest]", VALUES),
    checked("divided by one less", "moments", "moments.c", "= squares / (T)a->m;", "= squares / (T)(a->m - 1);", VALUES),
    checked("a boundary that belongs to the other side", "positive", "positive.cpp", "if (a.x(i) > least) {", "if (a.x(i) >= least && at < count) {", VALUES),
    checked("wrong for large sizes only", "moments", "moments.c", "sum += x[j];", "sum += j < 60 ? x[j] : 0;", VALUES),
    checked("halves are added up as halves", "average", "average.cpp", "double sum = 0;", "T sum = 0;", VALUES),
    checked("integers are added up in 32 bits", "tally", "tally.c", "int64_t sum = 0;", "uint32_t sum = 0;", VALUES),
    checked("only two tensors of a variadic input", "total", "total.c", "for (int64_t t = 0; t < a->xs.size; ++t)                                                                         \\\n        sum", "for (int64_t t = 0; t < a->xs.size && t < 2; ++t)                                                                \\\n        sum", VALUES),
    checked("bytes of a text are counted as characters", "settings", "settings.c", "((unsigned char)text.data[i] & 0xc0) != 0x80;", "1;", VALUES),
    checked("a place among the positive ones, not among all", "positive", "positive.cpp", "place(at++) = i;", "place(at) = at, ++at;", VALUES),
    # ---- attributes and optional inputs
    checked("an optional attribute is lost", "settings", "settings.c", " + (a->extra.present ? a->extra.value : 0.0)", "", VALUES),
    checked("an attribute is always its default", "settings", "settings.c", "a->negate ? -y : y", "y", VALUES),
    checked("an optional input is never used", "tally", "tally.c", "(a->weight.present ? a->weight.data[j] : 1)", "1", VALUES),
    kernel("an absent input is read", "linear", "linear.cpp", "(a.bias ? beta * a.bias(j) : T(0))", "beta * a.bias(j)", CRASHES),
    kernel("the first of an empty list is read", "settings", "settings.c", "const bool product", "value += a->shifts.data[0] > 1000;\n  const bool product", CRASHES),
    checked("the reference ignores an attribute", "linear", "linear.py", "return y if bias is None else y + beta * bias", "return y if bias is None else y + bias", VALUES),
    # ---- first gradients
    checked("an attribute is lost in the gradient", "linear", "linear.cpp", "a.grad_bias(j) = beta * sum;", "a.grad_bias(j) = sum;", FIRST),
    checked("a sign in the gradient", "linear", "linear.cpp", "a.grad_weight(j, p) = alpha * sum;", "a.grad_weight(j, p) = -alpha * sum;", FIRST),
    checked("an attribute's default in the gradient", "softmax", "softmax.cpp", "(a.grad(b, i) - sum) / temperature;", "(a.grad(b, i) - sum);", FIRST),
    checked("an input in the place of the output", "softmax", "softmax.cpp", "sum += a.grad(b, i) * a.out(b, i);", "sum += a.grad(b, i) * a.x(b, i);", FIRST),
    checked("the gradient of what is taken twice", "gather", "gather.cpp", "a.grad_x(a.index(i), j) += a.grad(i, j);", "a.grad_x(a.index(i), j) = a.grad(i, j);", FIRST),
    checked("a power that is not brought down", "total", "total.c", "a->grad.data[i] * (T)a->power * power_", "a->grad.data[i] * power_", FIRST),
    checked("another output's gradient", "moments", "moments.c", "2 * a->grad_spread.data[i]", "2 * a->grad_mean.data[i]", FIRST),
    checked("a term of the gradient is missing, in Python", "swish", "swish.py", "(s + beta * x * s * (1 - s))", "(s + x * s * (1 - s))", FIRST),
    checked("a derived gradient does not see an input", "rotate", "rotate.py", "torch.cos(turns * angle), torch.sin(turns * angle)", "torch.cos(turns * angle), torch.sin(turns * angle.detach())", FIRST),
    # ---- second gradients, forward mode, vmap
    checked("the gradient's body differs from its kernel", "linear", "linear.py", "return alpha * grad @ weight,", "return grad @ weight,", SECOND),
    checked("second order stops at a detach", "moments", "moments.py", "(x - mean[:, None])) / x.shape[1]", "(x - mean[:, None]).detach()) / x.shape[1]", SECOND),
    checked("second order through a constant, in Python", "swish", "swish.py", "    s = torch.sigmoid(beta * x)", "    s = torch.sigmoid(beta * x.detach())", SECOND),
    checked("forward mode stops at a detach", "swish", "swish.py", "return x * torch.sigmoid(beta * x)", "return x * torch.sigmoid(beta * x.detach())", FORWARD),
    Fault("elements of a batch depend on each other", "center", "center.py", (("return x - x.mean(-1, keepdim=True)", "return x - x.mean()"), ("return grad - grad.mean(-1, keepdim=True)", "return grad - grad.mean()")), VMAP, more=(("center.cpp", "    for (std::int64_t b = begin; b < end; ++b)\n      without_mean(a.x.data + b * a.n, a.out.data + b * a.n, a.n);", "    if (begin == 0)\n      without_mean(a.x.data, a.out.data, a.n * a.batch * (end > 0));"), ("center.cpp", "ctx.parallel_for(0, a.batch, 1,", "ctx.parallel_for(0, a.batch, a.batch,"), ("center.cpp", "for (std::int64_t b = 0; a.needs_x && b < a.batch; ++b)\n    without_mean(a.grad.data + b * a.n, a.grad_x.data + b * a.n, a.n);", "if (a.needs_x)\n    without_mean(a.grad.data, a.grad_x.data, a.n * a.batch);"))),
    # ---- shapes, dtypes, aliasing, state, in Python
    checked("a shape that is not the annotated one", "rotate", "rotate.py", "turned.sum(0))", "turned.sum(0, keepdim=True))", FAKE),
    checked("a size that is not the annotated one", "windows", "windows.py", '"*batch (n-size)//stride+1"', '"*batch n-size+1"', FAKE),
    checked("a dtype that is not the annotated one", "rotate", "rotate.py", "turned.sum(0))", "turned.sum(0).to(torch.float16))", FAKE),
    checked("two outputs share memory", "rotate", "rotate.py", "Rotated(turned, turned.sum(0))", "Rotated(turned + turned.sum(0), turned.sum(0)) if flip else Rotated(turned, turned[0])", ALIASING),
    checked("the reference works in place", "swish", "swish.py", "return x * torch.sigmoid(beta * x)", "return x.mul_(torch.sigmoid(beta * x))", MUTATION),
    checked("random numbers", "swish", "swish.py", "return x * torch.sigmoid(beta * x)", "return x * torch.sigmoid(beta * x) * (1 + 1e-7 * torch.rand(()))", DETERMINISM),
    Fault("every input is kept", "swish", "swish.py", (("@oneop.op(", "KEPT = []\n\n\n@oneop.op("), ("    return x * torch.sigmoid(beta * x)", "    KEPT.append(x.clone())\n    return x * torch.sigmoid(beta * x)")), OBJECTS),
    # ---- other runtimes
    checked("another formula while a program is traced", "swish", "swish.py", "    return x * torch.sigmoid(beta * x)", "    if torch.compiler.is_compiling():\n        return x * torch.clamp(beta * x / 6 + 0.5, 0, 1)\n    return x * torch.sigmoid(beta * x)", VALUES, None),
    checked("a value of the tensor decides in Python", "swish", "swish.py", "    return x * torch.sigmoid(beta * x)", "    if float(x.sum()) > 0:\n        return x * torch.sigmoid(beta * x)\n    return torch.sigmoid(beta * x) * x", VALUES, None),
    # ---- memory, outside Python
    kernel("a row is never written", "linear", "linear.cpp", "for (std::int64_t i = begin; i < end; ++i)\n      for", "for (std::int64_t i = begin; i < (end == a.n ? end - 1 : end); ++i)\n      for", UNINITIALISED),
    kernel("a column too many is written", "linear", "linear.cpp", "for (std::int64_t j = 0; j < a.m; ++j) {\n        T sum = 0;\n        for (std::int64_t p = 0; p < a.k; ++p)\n          sum += a.x(i, p)", "for (std::int64_t j = 0; j <= a.m; ++j) {\n        T sum = 0;\n        for (std::int64_t p = 0; j < a.m && p < a.k; ++p)\n          sum += a.x(i, p)", STRAY),
    kernel("a write in front of the output", "windows", "windows.cpp", "a.out(b, w) = sum;", "a.out(b, w) = sum;\n        a.out.data[b * count + w - 1] = w ? a.out(b, w - 1) : sum;", STRAY),
    kernel("scratch for one row, used for all", "softmax", "softmax.cpp", "ctx.scratch<T>(a.batch * a.n)", "ctx.scratch<T>(a.n)", STRAY),
    kernel("scratch is read before it is set", "softmax", "softmax.cpp", "T largest = -std::numeric_limits<T>::infinity(), sum = 0;", "T largest = a.n > 0 ? row[0] : T(0), sum = 0;", UNINITIALISED),
    kernel("a gradient is not set to 0 first", "gather", "gather.cpp", "  std::fill_n(a.grad_x.data, a.grad_x.numel(), T(0));\n", "", UNINITIALISED),
    kernel("a sum in memory that nobody set", "total", "total.c", "a->grad_scale.data[0] = 0; ", "", UNINITIALISED),
    kernel("a swallowed exception ends the work early", "windows", "windows.cpp", "sum += squares[static_cast<std::size_t>(w * a.stride + i)];\n        a.out(b, w) = sum;", "sum += squares[static_cast<std::size_t>(w * a.stride + i)];\n        try {\n          static_cast<void>(squares.at(static_cast<std::size_t>(w * a.stride + a.size)));\n          a.out(b, w) = sum;\n        } catch (const std::exception &) {\n        }", UNINITIALISED),
    kernel("an input is used as workspace", "moments", "moments.c", "squares += (x[j] - mean) * (x[j] - mean);", "((T *)x)[j] -= mean, squares += x[j] * x[j];", INPUTS),
    kernel("a resize to a size too many", "positive", "positive.cpp", "ctx.resize(a.value, {count});\n  const auto place = ctx.resize(a.place, {count});", "ctx.resize(a.value, {count + 1});\n  const auto place = ctx.resize(a.place, {count + 1});", UNINITIALISED),
    kernel("two outputs get different sizes", "positive", "positive.cpp", "ctx.resize(a.place, {count})", "ctx.resize(a.place, {a.n})", VALUES),
    kernel("strides are ignored", "outer", "outer.cpp", "a.x.data[i * a.x.stride(0) + j * a.x.stride(1)]", "a.x.data[i * a.m + j]", VALUES),
    kernel("strides of the gradient are ignored", "outer", "outer.cpp", "sum += a.grad(i, l, j) * a.y(j, l);", "sum += a.grad.data[(i * a.k + l) * a.m + j] * a.y(j, l);", VALUES),
    kernel("needs is ignored", "linear", "linear.cpp", "if (a.needs_bias)\n", "", CRASHES),
    kernel("a division by a size of 0", "center", "center.cpp", "ctx.parallel_for(0, a.batch, 1,", "ctx.parallel_for(0, a.x.numel() / a.n, 1,", CRASHES),
    kernel("an index type too narrow never ends", "average", "average.cpp", "for (std::int64_t j = 0; j < a.m; ++j)", "for (unsigned char j = 0; j < a.m; ++j)", CRASHES),
    kernel("memory is not given back", "windows", "windows.cpp", "std::vector<T> squares(static_cast<std::size_t>(a.n));", "T *const squares = new T[static_cast<std::size_t>(a.n) + 1];", MEMORY),
    # ---- threads
    kernel("pieces that count on their order", "center", "center.cpp", "ctx.parallel_for(0, a.batch, 1, [&](std::int64_t begin, std::int64_t end) {\n    for (std::int64_t b = begin; b < end; ++b)", "std::int64_t done = 0;\n  ctx.parallel_for(0, a.batch, 1, [&](std::int64_t begin, std::int64_t end) {\n    for (std::int64_t b = done; b < done + end - begin; ++b)", THREADS),
    kernel("a static buffer", "softmax", "softmax.cpp", "T *const scaled = ctx.scratch<T>(a.batch * a.n);", "static T scaled[1 << 17];", CALLERS),
    kernel("a counter that outlives the call", "average", "average.cpp", "      double sum = 0;", "      static int calls = 0;\n      double sum = 0.001 * (calls++ % 7);", DETERMINISM),
    sanitized("a variable that all threads share", "linear", "linear.cpp", "ctx.parallel_for(0, a.n, 1, [&](std::int64_t begin, std::int64_t end) {\n    for (std::int64_t i = begin; i < end; ++i)\n      for (std::int64_t j = 0; j < a.m; ++j) {\n        T sum = 0;", "T sum;\n  ctx.parallel_for(0, a.n, 1, [&](std::int64_t begin, std::int64_t end) {\n    for (std::int64_t i = begin; i < end; ++i)\n      for (std::int64_t j = 0; j < a.m; ++j) {\n        sum = 0;", "thread"),
    sanitized("a static buffer, seen by ThreadSanitizer", "softmax", "softmax.cpp", "T *const scaled = ctx.scratch<T>(a.batch * a.n);", "static T scaled[1 << 17];", "thread"),
    # ---- what C and C++ leave undefined
    sanitized("a read of one element too many", "windows", "windows.cpp", "sum += squares[static_cast<std::size_t>(w * a.stride + i)];", "sum += squares[static_cast<std::size_t>(w * a.stride + i)] + T(0) * squares[static_cast<std::size_t>(w * a.stride + i + 1)];", "address"),
    sanitized("integers are multiplied in 32 bits", "tally", "tally.c", "(int64_t)a->x.data[i * a->m + j] *", "a->x.data[i * a->m + j] *", "address"),
    sanitized("more alignment than there is", "average", "average.cpp", "sum += static_cast<double>(a.x(i, j));", "{\n        struct alignas(16) Wide {\n          T values[16 / sizeof(T)];\n        };\n        const T *const at = &a.x(i, j);\n        sum += static_cast<double>(j + 16 < a.m && j % 16 == 0 ? reinterpret_cast<const Wide *>(at)->values[0] : *at);\n      }", "address"),
)  # fmt: skip
