"""LuongAttention against the formulas of the paper, written out with loops."""

import copy
import math

import pytest
import torch
from luong_attention import LuongAttention, attend, concat_score


def by_hand(
    attention: LuongAttention, hidden: torch.Tensor, outputs: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Context and weights of one sequence, in float64."""
    hidden, outputs = hidden.double(), outputs.double()
    attention = copy.deepcopy(attention).double().requires_grad_(False)
    scores = []
    for e in outputs[:length]:
        if attention.score == "dot":
            scores.append(float(hidden @ e))
        elif attention.score == "general":
            scores.append(float(hidden @ attention.weight @ e))
        else:
            scores.append(float(attention.v @ torch.tanh(attention.weight @ torch.cat([hidden, e]))))
    total = sum(math.exp(score) for score in scores)
    weights = torch.zeros(len(outputs), dtype=torch.float64)
    for step, score in enumerate(scores):
        weights[step] = math.exp(score) / total
    return weights @ outputs, weights


@pytest.mark.parametrize("score", LuongAttention.SCORES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_lengths", [True, False])
def test_against_the_paper(score: str, dtype: torch.dtype, with_lengths: bool) -> None:
    torch.manual_seed(0)
    attention = LuongAttention(6, 6 if score == "dot" else 5, score).to(dtype)
    hidden = torch.randn(3, 6, dtype=dtype)
    outputs = torch.randn(3, 7, attention.encoder_size, dtype=dtype)
    lengths = torch.tensor([7, 1, 4]) if with_lengths else None
    context, weights = attention(hidden, outputs, lengths)
    for b in range(3):
        length = 7 if lengths is None else int(lengths[b])
        expected_context, expected_weights = by_hand(attention, hidden[b], outputs[b], length)
        torch.testing.assert_close(context[b], expected_context.to(dtype))
        torch.testing.assert_close(weights[b], expected_weights.to(dtype))
        assert (weights[b, length:] == 0).all()


@pytest.mark.parametrize("score", LuongAttention.SCORES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,)])
def test_any_leading_dimensions(score: str, batch: tuple[int, ...]) -> None:
    attention = LuongAttention(4, score=score)
    context, weights = attention(torch.randn(*batch, 4), torch.randn(*batch, 5, 4), torch.full(batch, 3))
    assert context.shape == (*batch, 4)
    assert weights.shape == (*batch, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(batch))


def test_lengths_at_and_beyond_the_ends() -> None:
    scores, outputs = torch.randn(3, 4), torch.randn(3, 4, 2)
    lengths = torch.tensor([0, 4, 9])
    context, weights = attend(scores, outputs, lengths)
    expected = attend.reference(scores, outputs, lengths)
    torch.testing.assert_close(context, expected.context)
    torch.testing.assert_close(weights, expected.weights)
    assert (weights[0] == 0).all()
    assert (context[0] == 0).all()


def test_large_scores_do_not_overflow() -> None:
    _, weights = attend(torch.tensor([1000.0, 999.0, -1000.0]), torch.randn(3, 2))
    torch.testing.assert_close(weights, torch.tensor([1000.0, 999.0, -1000.0]).softmax(-1))


def test_gradients() -> None:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    lengths = torch.tensor([5, 2])
    assert torch.autograd.gradcheck(concat_score, (tensor(2, 3), tensor(2, 5, 4), tensor(6, 7), tensor(6)))
    assert torch.autograd.gradcheck(lambda s, o: attend(s, o, lengths), (tensor(2, 5), tensor(2, 5, 4)))


@pytest.mark.parametrize("score", LuongAttention.SCORES)
def test_every_parameter_gets_a_gradient(score: str) -> None:
    attention = LuongAttention(4, score=score)
    hidden, outputs = torch.randn(2, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    attention(hidden, outputs).context.square().sum().backward()
    for tensor in (hidden, outputs, *attention.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().sum() > 0


def test_a_wrong_score_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no score 'additive'\. Choose one of dot, general, concat\."):
        LuongAttention(4, score="additive")


def test_dot_needs_one_size() -> None:
    with pytest.raises(ValueError, match=r"these are 4 and 5\. Choose 'general' or 'concat'\."):
        LuongAttention(4, 5, "dot")


def test_how_it_prints() -> None:
    assert repr(LuongAttention(4, 5)) == "LuongAttention(hidden_size=4, encoder_size=5, score='general')"
