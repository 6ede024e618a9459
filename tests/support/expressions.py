"""Hypothesis strategies for dimension expressions."""

from hypothesis import strategies as st

from oneop.definition.dims import Binary, Call, Expr, Name, Number

NAMES = ("n", "k", "h", "pad", "stride")

leaves = st.one_of(
    st.sampled_from(NAMES).map(Name), st.integers(min_value=0, max_value=9).map(Number), st.just(Number(2**40))
)


def _grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*", "//", "%"]), children, children),
        st.builds(Call, st.sampled_from(["min", "max"]), st.lists(children, min_size=2, max_size=3).map(tuple)),
    )


expressions: st.SearchStrategy[Expr] = st.recursive(leaves, _grow, max_leaves=8)
values = st.fixed_dictionaries({name: st.integers(min_value=0, max_value=50) for name in NAMES})
