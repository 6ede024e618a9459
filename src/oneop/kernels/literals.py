"""Values as literals that mean the same in C and in C++."""


def c_string(text: str) -> str:
    """Octal escapes have at most three digits, so that what follows one is never taken for a part of it."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode("utf-8")
    )
    return f'"{escaped}"'


def c_string_struct(text: str) -> str:
    """An initializer of ``oneop_string``."""
    return f"{{{c_string(text)}, {len(text.encode())}}}"


def c_int64(value: int) -> str:
    """There is no literal for the smallest one: its number without the sign does not fit."""
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


def c_double(value: float) -> str:
    """Needs <math.h>, or <cmath>."""
    value = float(value)
    if value != value:
        return "(double)NAN"
    if value in (float("inf"), float("-inf")):
        return "(double)INFINITY" if value > 0 else "-(double)INFINITY"
    return repr(value)
