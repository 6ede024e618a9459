"""One node in ONNX Runtime, 16 floats: oneop's library against a custom op written by hand in C++."""

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

import oneop
import onnxruntime
from benchmarks.measure import Measured, Row
from benchmarks.pytorch.muladd import muladd
from oneop.kernels.building import Library, Unit, build

SIZE, NODES, RUNS, ROUNDS = 16, 50, 200, 60

Run = Callable[[], None]


def rows() -> list[Row]:
    """The time of a node is what a model with NODES nodes more takes longer, which leaves the session's own out."""
    ours, peer = [_run("bench", count) for count in (1, NODES + 1)], [_run("peer", count) for count in (1, NODES + 1)]
    return [Row(f"a node in ONNX Runtime, {SIZE} floats", "C++ custom op by hand", _compare(ours, peer), 1.1)]


def _compare(ours: list[Run], peer: list[Run]) -> Measured:
    """Medians of differences: a ratio of two single differences would be mostly noise."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for side in (0, 1) if number % 2 else (1, 0):
            short, long = (ours, peer)[side]
            times[side].append((_seconds(long) - _seconds(short)) / NODES)
    mine, theirs = statistics.median(times[0]), statistics.median(times[1])
    return Measured(mine, theirs, mine / theirs)


def _seconds(run: Run) -> float:
    """Of processor time: the session runs on this thread alone, and a busy machine should not matter."""
    begin = time.thread_time()
    for _ in range(RUNS):
        run()
    return (time.thread_time() - begin) / RUNS


def _run(domain: str, count: int) -> Run:
    """A call of a session whose model has this many nodes in a row. The peer's numbers are checked too."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = _model(domain, count)
    if domain == "peer":
        options.register_custom_ops_library(str(_peer()))
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    else:
        session = oneop.onnxruntime.session(model, muladd, sess_options=options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.linspace(-1, 1, SIZE, dtype=np.float32), "w": np.full(SIZE, 0.5, np.float32)}
    np.testing.assert_allclose(session.run(None, feeds)[0], feeds["x"], rtol=1e-6)  # alpha * w is 1

    def run() -> None:
        session.run(None, feeds)

    return run


def _model(domain: str, count: int) -> bytes:
    names = ["x", *(f"y{number}" for number in range(1, count)), "out"]
    nodes = [
        helper.make_node("Muladd", [before, "w"], [after], domain=domain, alpha=2.0)
        for before, after in itertools.pairwise(names)
    ]
    tensors = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in ("w", *names)}
    between = [tensors[name] for name in names[1:-1]]  # exporters write these shapes; ONNX Runtime plans memory by them
    graph = helper.make_graph(nodes, "benchmark", [tensors["x"], tensors["w"]], [tensors["out"]], value_info=between)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def _peer() -> Path:
    library = Library(
        title="the hand-written custom op to compare with",
        stem="oneop_benchmark_ort_peer",
        units=(Unit("peer", "c++", path=Path(__file__).with_name("peer.cpp")),),
    )
    return build(library)
