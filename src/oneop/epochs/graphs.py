"""Which autograd graphs stay alive. A token is put into a node's metadata and lives exactly as long as the node."""

import gc
import itertools
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oneop.epochs.collector import tensors_in
from oneop.epochs.records import ContextTensor
from oneop.epochs.sources import context_line

_numbers = itertools.count()

MOST_NODES = 20_000
"""A graph is walked so far and no further."""


class Token:
    """Dies with the node whose metadata holds it. Knows the step that made the node."""

    __slots__ = ("__weakref__", "step")

    def __init__(self, step: int) -> None:
        self.step = step


Reference = weakref.ReferenceType[Token]


def walk(roots: Iterable[Any], seen: set[Any] | None = None, most: int = MOST_NODES) -> Iterator[Any]:
    """The nodes of a graph, but those that only add up a parameter's gradient: they live as long as that."""
    seen = set() if seen is None else seen
    stack = [root for root in roots if root is not None]
    count = 0
    while stack and count < most:
        node = stack.pop()
        if node in seen or hasattr(node, "variable"):
            continue
        seen.add(node)
        count += 1
        yield node
        stack.extend(following for following, _ in node.next_functions if following is not None)


@dataclass
class Sample:
    """The nodes of one step's graph, and the tensors on the ctx of its Python functions."""

    epoch: int
    nodes: list[Reference]
    context: list[tuple[ContextTensor, Reference]]
    size: int
    age: int = 0
    alive: int = 0
    outliving: set[int] = field(default_factory=set)

    @property
    def is_settled(self) -> bool:
        """Two steps have begun since: the variables of the loop have other values."""
        return self.age >= 2


class Graphs:
    """The losses and outputs of every step, and all nodes of a few."""

    def __init__(self) -> None:
        self._losses: list[tuple[int, Reference]] = []
        self._outputs: list[tuple[int, Reference]] = []
        self._samples: list[Sample] = []
        self._fresh: Sample | None = None
        self._prune_at = 4096
        self._step = 0
        self._key = f"oneop.epochs {next(_numbers)}"  # another watch may have marked the same node

    def tag(self, node: Any) -> Reference:
        """A reference that is dead once the node is. A node that has a token keeps it."""
        metadata = node.metadata
        token = metadata.get(self._key)
        if token is None:
            token = metadata[self._key] = Token(self._step)
        return weakref.ref(token)

    def step_of(self, node: Any) -> int | None:
        """The step that a watched node was made in; None if it is not watched."""
        token = node.metadata.get(self._key)
        return None if token is None else token.step

    def saw_output(self, epoch: int, output: Any) -> None:
        for tensor in tensors_in(output)[:1]:
            if tensor.grad_fn is not None:
                self._outputs.append((epoch, self.tag(tensor.grad_fn)))

    def saw_loss(self, epoch: int, outputs: Iterable[Any]) -> None:
        for output in outputs:
            node = output.grad_fn if isinstance(output, Tensor) else getattr(output, "node", None)
            if node is not None:
                self._losses.append((epoch, self.tag(node)))
        if len(self._losses) + len(self._outputs) > self._prune_at:
            self._prune()
            self._prune_at = 2 * (len(self._losses) + len(self._outputs)) + 4096

    def sample(self, epoch: int, outputs: Iterable[Any]) -> int:
        """Walks the graph of a step before its backward, and gives the number of its nodes."""
        nodes: list[Reference] = []
        context: list[tuple[ContextTensor, Reference]] = []
        for node in walk(output.grad_fn for output in outputs if isinstance(output, Tensor)):
            reference = self.tag(node)
            nodes.append(reference)
            if isinstance(node, torch._C._FunctionBase):
                context += [(found, reference) for found in _context_tensors(node)]
        self._fresh = Sample(epoch, nodes, context, len(nodes))
        self._samples.append(self._fresh)
        return len(nodes)

    def step_ended(self) -> None:
        """Counts what a sampled step has left behind, once the loop's variables have other values."""
        self._step += 1
        fresh = self._fresh
        if fresh is None:
            return
        fresh.age += 1
        if fresh.is_settled:
            fresh.outliving = {number for number, (_, node) in enumerate(fresh.context) if node() is not None}
            self._fresh = None

    def epoch_ended(self) -> None:
        self._fresh = None
        self._prune()
        for sample in self._samples:
            sample.nodes = [node for node in sample.nodes if node() is not None]
            sample.alive = len(sample.nodes) if sample.is_settled else 0

    def kept(self, epoch: int | None = None) -> int:
        """How many losses (or outputs, if more) still have their graph; of one epoch, or of all."""
        return max(
            sum(node() is not None and epoch in (None, of) for of, node in seen)
            for seen in (self._losses, self._outputs)
        )

    def alive_nodes(self, steps: dict[int, int]) -> int:
        """An estimate: each sampled step stands for all ``steps`` of its epoch, less the one that is under way."""
        return sum(sample.alive * max(steps.get(sample.epoch, 1) - 1, 0) for sample in self._samples)

    def size(self, epoch: int) -> int | None:
        return max((sample.size for sample in self._samples if sample.epoch == epoch), default=None)

    def context(self, epoch: int) -> tuple[ContextTensor, ...]:
        return tuple(
            ContextTensor(**{**vars(found), "outlives_step": number in sample.outliving})
            for sample in self._samples
            if sample.epoch == epoch
            for number, (found, _) in enumerate(sample.context)
        )

    def forget(self, before: int) -> None:
        """Samples of earlier epochs of which nothing is left say nothing any more."""
        self._samples = [sample for sample in self._samples if sample.epoch >= before or sample.alive]

    def release(self) -> None:
        """Takes the tokens out of the nodes that are alive: graphs that outlive a watch hold nothing of it.

        A token cannot hold its node, nor what it is in, so that these are looked for among all objects.
        """
        for found in gc.get_objects():
            if type(found) is dict and type(found.get(self._key)) is Token:
                del found[self._key]

    def _prune(self) -> None:
        self._losses = [(epoch, node) for epoch, node in self._losses if node() is not None]
        self._outputs = [(epoch, node) for epoch, node in self._outputs if node() is not None]


def _context_tensors(node: Any) -> Iterator[ContextTensor]:
    function = getattr(type(node), "_forward_cls", None)
    if function is None or function.__module__.startswith("torch."):
        return  # torch's own know what they do
    for name, value in vars(node).items():
        tensors = tensors_in(value)
        if tensors:
            place = context_line(function, name)
            yield ContextTensor(
                function=function.__qualname__,
                attribute=name,
                file=place.file or "",
                line=place.line or 0,
                code=place.code or "",
                bytes=sum(tensor.nbytes for tensor in tensors),
                is_output=any(tensor.grad_fn is node for tensor in tensors),
                outlives_step=False,
            )
