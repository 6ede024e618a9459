"""What a definition may say about splitting, what is refused, and what `verify_sharding` finds."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import oneop
from distributed import operators
from oneop.targets.pytorch.sharding import Rule, cuts_of, rule_of


def rules(operator: Any, leading: int = 0) -> dict[str, Rule | None]:
    return {cut.label: rule_of(operator, cut, leading) for cut in cuts_of(operator, leading)}


def test_rules_of_an_operator_and_its_gradient() -> None:
    forward, backward = rules(operators.scaled_linear), rules(operators.scaled_linear_grad)
    shares = {label: (rule.inputs, rule.outputs) for label, rule in forward.items() if rule is not None}
    assert shares == {
        "n": ((0, "whole", "whole"), (0,)),
        "m": (("whole", 0, 0), (1,)),
        "k": ((1, 1, "summand"), ("summand",)),
    }
    shares = {label: (rule.inputs, rule.outputs) for label, rule in backward.items() if rule is not None}
    assert shares == {
        "n": ((0, 0, "whole", "whole"), (0, "summand", "summand")),
        "m": ((1, "whole", 0, 0), ("summand", 0, 0)),
        "k": (("whole", 1, 1, "whole"), (1, 1, "whole")),
    }


def test_a_leading_group_needs_no_word() -> None:
    assert list(rules(operators.gate, 2)) == ["*batch[0]", "*batch[1]"]
    assert rules(operators.silent) == {}


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_verify_sharding_names_what_it_checked() -> None:
    linear = operators.scaled_linear
    assert oneop.verify_sharding(linear, random(4, 6), random(5, 6), random(5), alpha=0.5) == ["n", "m", "k"]
    assert oneop.verify_sharding(linear, random(1, 6), random(5, 6)) == ["m", "k"]
    assert oneop.verify_sharding(operators.gate, random(2, 3, 4)) == ["*batch[0]", "*batch[1]"]
    assert oneop.verify_sharding(operators.total, [random(2, 4), random(2, 4)]) == ["*batch[0]"]
    assert oneop.verify_sharding(operators.weighted, random(4, 6), random()) == ["n", "k"]
    assert oneop.verify_sharding(operators.softmax, random(4, 6)) == ["n"]
    assert oneop.verify_sharding(operators.parts, random(4, 6), torch.tensor([0, 1, 5, 2]), random(6)) == ["n"]
    assert oneop.verify_sharding(operators.silent, random(4, 6), random(6)) == []


def test_verify_sharding_in_low_precision() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [value.to(dtype) for value in (random(40, 600), random(50, 600), random(50))]
        assert oneop.verify_sharding(operators.scaled_linear, *tensors) == ["n", "m", "k"]


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        (
            "mixed",
            [random(4, 6)],
            r"distributed::mixed: the definition's `independent=\('k',\)` is wrong. `out`, put together from halves"
            r" along `k`, is off by 0\.\d+ where the largest value is 0\.\d+. Remove `k` from `independent`.",
        ),
        (
            "rectified",
            [random(4, 6)],
            r"distributed::rectified: the definition's `summed=\{'k': \(\)\}` is wrong. .* Remove `k` from `summed`, or"
            r" correct its inputs.",
        ),
        ("biased", [random(4, 6), random(4)], r"distributed::biased: the definition's `summed=\{'k': \(\)\}` is wrong"),
        ("lying", [random(4)], r"distributed::lying_grad: the definition's `independent=\('n',\)` is wrong. `grad_x`"),
        (
            "group_mixed",
            [random(4, 6)],
            r"distributed::group_mixed: the definition's `\*batch` is wrong. .* along `\*batch\[0\]`, .* Give the"
            r" dimensions of `\*batch` names: elements of a leading group must not depend on each other.",
        ),
    ],
)
def test_verify_sharding_finds_wrong_words(name: str, inputs: list[Tensor], message: str) -> None:
    with pytest.raises(oneop.CallError, match=message):
        oneop.verify_sharding(getattr(operators, name), *inputs)


def test_verify_sharding_takes_the_operator() -> None:
    with pytest.raises(oneop.CallError, match=r"a gradient is verified with its operator. Pass `softmax` and its"):
        oneop.verify_sharding(operators.softmax_grad, random(4, 6), random(4, 6), random(4, 6))


def define(**words: Any) -> oneop.Operator:
    @oneop.op("distributed::refused", **words)
    def refused(
        x: Float[Tensor, "n k h"], y: Float[Tensor, "q q h+1"], b: Float[Tensor, "n"] | None = None
    ) -> Float[Tensor, "n"]:
        return x.sum((1, 2))

    return refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"independent": ["z"]},
            "independent names `z`, which is no dimension of an input. The dimensions are `n`, `k`, `h`, `q`; a"
            " leading group needs no word.",
        ),
        ({"independent": "n"}, r"independent='n' is a string. Write independent=\('n',\)."),
        ({"summed": "k"}, r"summed='k' is a string. Write summed=\('k',\)."),
        (
            {"independent": ["k"]},
            r'independent names `k`, which output `out` \("n"\) does not have. Remove `k`, or say summed=...',
        ),
        ({"summed": ["n"]}, r'summed names `n`, which output `out` \("n"\) has. Remove `n`, or say independent=...'),
        ({"independent": ["n"], "summed": ["n"]}, "`n` is both independent and summed. Remove one of the two."),
        ({"summed": ["q"]}, r'summed names `q`, which stands twice in `y` \("q q h\+1"\), so that it cannot be sliced'),
        (
            {"summed": ["h"]},
            r'summed names `h`, from which `y` \("q q h\+1"\) computes a size: slices would have others',
        ),
        ({"summed": {"k": "z"}}, "summed names `z`, which is no input. The inputs are x, y, b."),
        ({"summed": {"k": "x"}}, "summed says that `x` is split into summands, but it has `k` and is cut along that."),
    ],
)
def test_words_that_cannot_be_right_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(oneop.DefinitionError, match=f"distributed::refused: {message}"):
        define(**words)


def test_words_for_unknown_sizes_are_refused() -> None:
    with pytest.raises(oneop.DefinitionError, match="but an output has a size that only the kernel knows"):

        @oneop.op("distributed::refused_size", independent=("n",))
        def refused_size(x: Float[Tensor, "n k"]) -> Float[Tensor, "n ?m"]:
            return x[:, : int(x[0, 0])]


def test_words_do_not_change_the_fingerprint() -> None:
    assert define().definition.fingerprint == define(independent=["n"]).definition.fingerprint


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DEFINE = """
import sys, torch, oneop
from jaxtyping import Float
from torch import Tensor
def define(name):
    @oneop.op(name, independent=("n",))
    def f(x: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return x.softmax(1)
    return getattr(torch.ops.lazily, name.partition("::")[2]).default
def has_rule(operator):
    return operator in torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
"""


def test_rules_wait_for_dtensor_and_do_not_import_it() -> None:
    code = (
        DEFINE
        + """
before = [define("lazily::a"), define("lazily::b")]
print("torch.distributed.tensor" in sys.modules)
import torch.distributed.tensor
after = define("lazily::c")
import oneop.targets.pytorch.sharding as sharding
rules = [has_rule(item) for item in (*before, after)]
print(rules, any(getattr(f, 'name', '') == sharding.DTENSOR for f in sys.meta_path))
print(torch.distributed.tensor.__spec__.loader.exec_module.__qualname__)
"""
    )
    assert run(code).splitlines() == ["False", "[True, True, True] False", "_LoaderBasics.exec_module"]


def test_torch_compile_may_be_what_imports_dtensor() -> None:
    code = (
        DEFINE
        + """
operator = define("lazily::d")
x = torch.ones(2, 2)
print(torch.compile(operator, backend="aot_eager", fullgraph=True)(x).sum().item())
import torch.distributed.tensor
print(has_rule(operator))
"""
    )
    assert run(code).splitlines() == ["2.0", "True"]
