"""Luong's attention as an nn.Module, on two operators with kernels in C++.

Luong, Pham and Manning, "Effective Approaches to Attention-based Neural Machine Translation" (EMNLP 2015), section 3.1.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

import oneop


@oneop.op("demo::concat_score", kernels=["luong_attention.cpp"])
def concat_score(
    hidden: Float[Tensor, "*batch h"],
    outputs: Float[Tensor, "*batch t e"],
    weight: Float[Tensor, "u h+e"],
    v: Float[Tensor, "u"],
) -> Float[Tensor, "*batch t"]:
    """v . tanh(weight [hidden; outputs[t]]), for each step t"""
    h = hidden.shape[-1]
    projected = (hidden @ weight[:, :h].T).unsqueeze(-2) + outputs @ weight[:, h:].T
    return torch.tanh(projected) @ v


class Attended(NamedTuple):
    context: Float[Tensor, "*batch e"]
    weights: Float[Tensor, "*batch t"]


@oneop.op("demo::attend", kernels=["luong_attention.cpp"])
def attend(
    scores: Float[Tensor, "*batch t"],
    outputs: Float[Tensor, "*batch t e"],
    lengths: Int64[Tensor, "*batch"] | None = None,
) -> Attended:
    """The softmax of the scores over the first lengths[i] steps, and the mean of the outputs with those weights."""
    if lengths is None:
        weights = scores.softmax(-1)
    else:
        steps = torch.arange(scores.shape[-1], device=scores.device)
        beyond = steps >= lengths.unsqueeze(-1)
        # The second mask makes the weights of an empty sequence 0, where a softmax over nothing gives NaN.
        weights = scores.masked_fill(beyond, -torch.inf).softmax(-1).masked_fill(beyond, 0.0)
    return Attended((weights.unsqueeze(-2) @ outputs).squeeze(-2), weights)


# What lies behind the length of a sequence is not read; the reference multiplies it by 0, which NaN does not stand.
attend.example(lengths="0 <= lengths <= t", outputs="finite")


class LuongAttention(nn.Module):
    """Scores each encoder output against a decoder's hidden state, and averages the outputs with the scores' softmax.

    The score of the hidden state h and the output e is h . e (``dot``), h . W e (``general``), or v . tanh(W [h; e])
    (``concat``).
    """

    SCORES = ("dot", "general", "concat")

    def __init__(self, hidden_size: int, encoder_size: int | None = None, score: str = "general") -> None:
        super().__init__()
        encoder_size = hidden_size if encoder_size is None else encoder_size
        if score not in self.SCORES:
            raise ValueError(f"LuongAttention: there is no score {score!r}. Choose one of {', '.join(self.SCORES)}.")
        if score == "dot" and hidden_size != encoder_size:
            raise ValueError(
                f"LuongAttention: the score 'dot' needs a hidden state and encoder outputs of one size, and these are "
                f"{hidden_size} and {encoder_size}. Choose 'general' or 'concat'."
            )
        self.hidden_size, self.encoder_size, self.score = hidden_size, encoder_size, score
        if score == "general":
            self.weight = nn.Parameter(torch.empty(hidden_size, encoder_size))
        elif score == "concat":
            self.weight = nn.Parameter(torch.empty(hidden_size, hidden_size + encoder_size))
            self.v = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            bound = parameter.shape[-1] ** -0.5
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, hidden: Tensor, encoder_outputs: Tensor, lengths: Tensor | None = None) -> Attended:
        """The context and the weights.

        For ``hidden`` of shape (*batch, hidden_size), ``encoder_outputs`` of shape (*batch, time, encoder_size) and the
        number of valid steps, ``lengths``, of shape (*batch), they are (*batch, encoder_size) and (*batch, time).
        """
        return attend(self._scores(hidden, encoder_outputs), encoder_outputs, lengths)

    def _scores(self, hidden: Tensor, encoder_outputs: Tensor) -> Tensor:
        if self.score == "concat":
            return concat_score(hidden, encoder_outputs, self.weight, self.v)
        query = hidden @ self.weight if self.score == "general" else hidden
        return (encoder_outputs @ query.unsqueeze(-1)).squeeze(-1)

    def extra_repr(self) -> str:
        return f"hidden_size={self.hidden_size}, encoder_size={self.encoder_size}, score={self.score!r}"
