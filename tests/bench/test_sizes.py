"""The sizes at which operators are measured: derived from their dimensions, or as the user writes them."""

import re

import pytest
from jaxtyping import Float, Int64
from torch import Tensor

from oneop.bench.sizes import Size, parse_size, parse_sizes, require_known, sizes_of
from oneop.check.constraints import Constraints
from oneop.definition.record import Definition
from oneop.definition.signature import definition_of
from oneop.errors import OneopError


def definition(function, name: str = "bench::op") -> Definition:
    return definition_of(function, name)


def vector(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x


def linear(x: Float[Tensor, "n k"], w: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    return x @ w.T


def joined(
    state: Float[Tensor, "*batch h"], steps: Float[Tensor, "*batch t e"], weight: Float[Tensor, "u h+e"]
) -> Float[Tensor, "*batch t"]:
    raise NotImplementedError


def found(x: Float[Tensor, "n"]) -> Int64[Tensor, "?k"]:
    return x.nonzero()[:, 0]


def test_derived_sizes_grow_with_the_tensors_and_stay_within_the_work() -> None:
    assert [str(size) for size in sizes_of(definition(vector))] == ["n=1024", "n=65536", "n=4194304"]
    assert [str(size) for size in sizes_of(definition(linear))] == [
        "n=16 k=16 m=16",
        "n=128 k=128 m=128",
        "n=512 k=512 m=512",
    ]


def test_a_group_of_leading_dimensions_is_one_dimension_by_default() -> None:
    largest = sizes_of(definition(joined))[-1]
    assert largest == Size({"h": 32, "t": 32, "e": 32, "u": 32}, {"batch": (32,)})


def test_given_sizes_fix_names_and_the_rest_takes_the_middle_one() -> None:
    sizes = sizes_of(definition(linear), [parse_size("n=7, k=9"), parse_size("m=3")])
    assert [str(size) for size in sizes] == ["n=7 k=9 m=128", "n=128 k=128 m=3"]


def test_given_sizes_with_a_sweep_of_the_rest() -> None:
    sizes = sizes_of(definition(linear), [parse_size("k=64")], parse_sizes("8,16"))
    assert [str(size) for size in sizes] == ["n=8 k=64 m=8", "n=16 k=64 m=16"]


def test_the_same_size_is_measured_once() -> None:
    assert len(sizes_of(definition(vector), [{"n": (5,)}, {"n": (5,)}])) == 1


def test_a_group_may_have_several_dimensions() -> None:
    (size,) = sizes_of(definition(joined), [parse_size("batch=2x3")], [4])
    assert size.groups == {"batch": (2, 3)}
    assert str(size) == "batch=2x3 h=4 t=4 e=4 u=4"


def test_constraints_bound_the_derived_sizes() -> None:
    constraints = Constraints(definition(linear))
    constraints.add({"k": "1 <= k <= 20", "m": "m <= n"})
    assert [size.dims["k"] for size in sizes_of(definition(linear), constraints=constraints)] == [16, 20, 20]


def test_constraints_refuse_given_sizes() -> None:
    constraints = Constraints(definition(linear))
    constraints.add({"k": "k <= 20"})
    with pytest.raises(OneopError, match=r"^bench::op: the size k=21: .*\"k <= 20\".* Give another with --size\.$"):
        sizes_of(definition(linear), [parse_size("k=21")], constraints=constraints)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n", "--size n: `n` is no size. Write names and sizes, such as --size n=1024,k=64."),
        ("n=1,", "--size n=1,: `` is no size. Write names and sizes, such as --size n=1024,k=64."),
        (
            "n=abc",
            (
                "--size n=abc: `abc` is no size. Write whole numbers from 1, such as --size n=1024,k=64 or --sizes"
                " 64,256,1024."
            ),
        ),
        (
            "n=0",
            (
                "--size n=0: `0` is no size. Write whole numbers from 1, such as --size n=1024,k=64 or --sizes"
                " 64,256,1024."
            ),
        ),
        ("n=1,n=2", "--size n=1,n=2: `n` is given twice. Give it once; another --size measures another."),
    ],
)
def test_what_is_no_size(text: str, said: str) -> None:
    with pytest.raises(OneopError, match=f"^{re.escape(said)}$"):
        parse_size(text)


def test_what_are_no_sizes() -> None:
    with pytest.raises(OneopError, match=r"^--sizes 8,-1: `-1` is no size\. Write whole numbers from 1, "):
        parse_sizes("8,-1")


def test_a_dimension_that_is_none() -> None:
    said = "bench::op: there is no dimension `q`. The dimensions are n, k, m. Write for example --size n=64,k=64,m=64."
    with pytest.raises(OneopError, match=f"^{re.escape(said)}$"):
        require_known([definition(linear)], [{"q": (1,)}])


def test_a_dimension_of_one_of_several_operators_is_known() -> None:
    both = [definition(linear), definition(joined, "bench::joined")]
    require_known(both, [{"m": (1,)}, {"batch": (2, 2)}])
    assert [str(size) for size in sizes_of(both[1], [{"m": (1,)}], [4])] == ["batch=4 h=4 t=4 e=4 u=4"]


def test_a_size_that_only_the_kernel_knows() -> None:
    said = "bench::op: the size `k` is known only after the kernel ran, so it cannot be given. Leave it out of --size."
    with pytest.raises(OneopError, match=f"^{re.escape(said)}$"):
        require_known([definition(found)], [{"k": (1,)}])


def test_one_dimension_takes_one_number() -> None:
    said = "bench::op: `n` is one dimension, and --size gives it 2x3. Give one number."
    with pytest.raises(OneopError, match=f"^{re.escape(said)}$"):
        sizes_of(definition(vector), [{"n": (2, 3)}])
