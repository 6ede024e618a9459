"""The main job: train a digit classifier on operators of our own, export it, and run the one file in three ways.

Run it with `make demo`, or with `python examples/demo.py [folder for the results]`.
"""

import json
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from luong_attention import LuongAttention
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scaled_linear_cpp.scaled_linear import ScaledLinear
from sklearn.datasets import load_digits
from torch import Tensor, nn

import oneop

EXAMPLES = Path(__file__).resolve().parent
DEFINITIONS = (EXAMPLES / "luong_attention.py", EXAMPLES / "scaled_linear_cpp" / "scaled_linear.py")
EPOCHS = 20
LEAST_ACCURACY = 0.95
LARGEST_DIFFERENCE = 1e-4


class DigitReader(nn.Module):
    """Reads an image row by row, then looks back at the rows that matter."""

    def __init__(self, row_size: int = 8, hidden_size: int = 48, classes: int = 10) -> None:
        super().__init__()
        self.reader = nn.GRU(row_size, hidden_size, batch_first=True)
        self.attention = LuongAttention(hidden_size, score="concat")
        self.combine = ScaledLinear(2 * hidden_size, hidden_size)
        self.classify = ScaledLinear(hidden_size, classes, alpha=2.0, beta=0.5)

    def forward(self, images: Tensor) -> Tensor:
        rows, last = self.reader(images)
        hidden = last.squeeze(0)
        context, _ = self.attention(hidden, rows)
        return self.classify(torch.tanh(self.combine(torch.cat([context, hidden], -1))))


@dataclass(frozen=True)
class Digits:
    """Handwritten digits of 8 x 8 pixels, from scikit-learn, in a fixed random order."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @classmethod
    def load(cls) -> "Digits":
        digits = load_digits()
        order = torch.randperm(len(digits.images), generator=torch.Generator().manual_seed(0))
        images = torch.tensor(digits.images / 16, dtype=torch.float32)[order]
        labels = torch.tensor(digits.target)[order]
        n_train = len(images) * 4 // 5
        return cls(images[:n_train], labels[:n_train], images[n_train:], labels[n_train:])


@dataclass(frozen=True)
class Way:
    """One way to run the classifier: a function from images to scores, and who computes our operators in it."""

    title: str
    run: Callable[[np.ndarray], np.ndarray]
    served_by: str


@dataclass(frozen=True)
class Measured:
    accuracy: float
    difference: float
    seconds_in_a_batch: float  # for an image, where all come at once
    seconds_alone: float  # for an image that comes by itself


def main(folder: Path) -> int:
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    digits = Digits.load()
    model = train(digits, console)
    path = folder / "digits.onnx"
    with console.status(f"exporting {path}"):
        export(model, digits.test_images[:2], path)
    libraries = [oneop.build(file, "onnxruntime", folder) for file in DEFINITIONS]
    for file in (path, *libraries):
        console.print(f"wrote {folder / file.name}", highlight=False)

    ways = [in_pytorch(model), in_onnxruntime(path, []), in_onnxruntime(path, libraries)]
    images, labels = digits.test_images.numpy(), digits.test_labels.numpy()
    expected = ways[0].run(images)
    results = {way.title: measure(way, images, labels, expected) for way in ways}
    console.print(table(results, len(images)))
    for way in ways:
        console.print(f"{way.title}: our operators run as {way.served_by}", highlight=False)
    return verdict(results)


def train(digits: Digits, console: Console) -> DigitReader:
    torch.manual_seed(0)
    model = DigitReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with Progress(console=console) as progress:
        task = progress.add_task("training", total=EPOCHS)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(digits.train_images)).split(64):
                loss = nn.functional.cross_entropy(model(digits.train_images[batch]), digits.train_labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            progress.update(task, advance=1, description=f"training, loss {loss.item():.3f}")
    return model.eval()


def export(model: DigitReader, images: Tensor, path: Path) -> None:
    # What the exporter says here is about torch's own parts: packages it could use too, and how it takes nn.GRU apart.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", message="The tensor attributes .*_flat_weights", category=UserWarning)
        oneop.export(model, (images,), path, dynamic_shapes={"images": {0: torch.export.Dim("batch")}}, verbose=False)


def in_pytorch(model: DigitReader) -> Way:
    def run(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(images)).numpy()

    return Way("PyTorch", run, "kernels in C++")


def in_onnxruntime(path: Path, libraries: list[Path]) -> Way:
    """Plain ONNX Runtime: nothing of oneop takes part but the file and, where they are given, the libraries."""
    session = open_session(path, libraries)
    ours = operators_run(path, libraries)
    title = "ONNX Runtime, native" if libraries else "ONNX Runtime, file alone"
    kernels = ", ".join(f"{count} {name}" for name, count in sorted(ours.items()))
    served_by = f"kernels in C++ ({kernels})" if kernels else "the functions in the file"
    return Way(title, lambda images: session.run(None, {session.get_inputs()[0].name: images})[0], served_by)


def open_session(path: Path, libraries: list[Path], profile: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    for library in libraries:
        options.register_custom_ops_library(str(library))
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def operators_run(path: Path, libraries: list[Path]) -> Counter[str]:
    """How often each of our operators ran as a node of its own in one run, from ONNX Runtime's profile."""
    session = open_session(path, libraries, profile=path.parent / "profile")
    session.run(None, {session.get_inputs()[0].name: np.zeros((1, 8, 8), np.float32)})
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text())
    profile.unlink()
    run = Counter(event["args"]["op_name"] for event in events if "op_name" in event.get("args", {}))
    ours = {operator.definition.onnx_name for file in DEFINITIONS for operator in oneop.registry.load_file(file)}
    return Counter({name: count for name, count in run.items() if name in ours})


def measure(way: Way, images: np.ndarray, labels: np.ndarray, expected: np.ndarray) -> Measured:
    scores = way.run(images)
    return Measured(
        accuracy=float((scores.argmax(-1) == labels).mean()),
        difference=float(np.abs(scores - expected).max()),
        seconds_in_a_batch=fastest(way.run, images, 30) / len(images),
        seconds_alone=fastest(way.run, images[:1], 300),
    )


def fastest(run: Callable[[np.ndarray], np.ndarray], images: np.ndarray, times: int) -> float:
    """Seconds of the fastest run: what others do on the machine only adds to it."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run(images)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def table(results: dict[str, Measured], n_images: int) -> Table:
    drawn = Table(title=f"{n_images} test images", title_justify="left")
    difference = "largest\ndifference\nfrom PyTorch"
    for title in ("", "accuracy", difference, "per image,\nin a batch", "per image,\none by one"):
        drawn.add_column(title, justify="right" if title else "left", no_wrap=True)
    for title, measured in results.items():
        drawn.add_row(
            title,
            f"{measured.accuracy:.2%}",
            f"{measured.difference:.1e}",
            f"{measured.seconds_in_a_batch * 1e6:.1f} µs",
            f"{measured.seconds_alone * 1e6:.0f} µs",
        )
    return drawn


def verdict(results: dict[str, Measured]) -> int:
    """The exit status: 0 where every way is accurate, and all are the same."""
    accuracies = {measured.accuracy for measured in results.values()}
    differences = [measured.difference for measured in results.values()]
    if len(accuracies) > 1 or not all(difference <= LARGEST_DIFFERENCE for difference in differences):
        print(f"the ways differ: accuracies {sorted(accuracies)}, scores by {differences}", file=sys.stderr)
        return 1
    if min(accuracies) < LEAST_ACCURACY:
        print(f"the accuracy is {min(accuracies):.2%}; it should be at least {LEAST_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/demo")))
