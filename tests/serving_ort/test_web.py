"""A web page runs the file's functions: examples/web/index.html, in a real Chromium."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from serving_ort import cases

from support.browser import OpenPage, browser, open_page  # noqa: F401
from support.onnx_checks import export_quietly

PAGE = cases.ROOT / "examples" / "web" / "index.html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_address[1]}"
        finally:
            served.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, node_modules: Path) -> tuple[Path, torch.nn.Module]:
    """A folder as the page wants it. The model takes and gives what the demo's does, and is quickly exported."""
    folder = tmp_path_factory.mktemp("web")
    scaled_linear = cases.operator()

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(torch.randn(10, 64)), torch.nn.Parameter(torch.randn(10))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return scaled_linear(images.flatten(1), self.weight, self.bias, alpha=2.0, beta=0.5)

    torch.manual_seed(0)
    model = Reader().eval()
    sizes = {"images": {0: torch.export.Dim("batch")}}
    export_quietly(model, (torch.rand(2, 8, 8),), folder / "digits.onnx", dynamic_shapes=sizes)
    (folder / "index.html").write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "node_modules").symlink_to(node_modules)
    return folder, model


def test_the_page_reads_what_is_painted(digits: tuple[Path, torch.nn.Module], open_page: OpenPage) -> None:  # noqa: F811
    folder, model = digits
    with server(folder) as address:
        seen = open_page(f"{address}/index.html")
        page = seen.page
        page.wait_for_function("document.getElementById('status').textContent.startsWith('Paint')", timeout=60_000)
        box = page.locator("#board").bounding_box()
        assert box is not None
        cell = box["width"] / 8
        page.mouse.move(box["x"] + 3.5 * cell, box["y"] + 1.5 * cell)
        page.mouse.down()
        for row in range(1, 7):
            page.mouse.move(box["x"] + 3.5 * cell, box["y"] + (row + 0.5) * cell)
        page.mouse.up()
        page.wait_for_function("document.getElementById('status').textContent.startsWith('This looks')")
        expected_pixels = np.zeros((8, 8), np.float32)
        expected_pixels[1:7, 3] = 1
        expected_pixels[1:7, [2, 4]] = np.float32(0.4)
        expected_pixels[[0, 7], 3] = np.float32(0.4)
        with torch.no_grad():
            expected = model(torch.from_numpy(expected_pixels)[None])[0].numpy()
        # The last stroke's answer may still be on its way.
        page.wait_for_function(
            "wanted => Math.abs(Number(document.querySelector('li').dataset.score) - wanted) < 1e-4",
            arg=float(expected[0]),
        )
        scores = page.eval_on_selector_all("#scores li", "rows => rows.map(row => Number(row.dataset.score))")
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
        shares = page.locator("#scores li span:last-child").all_inner_texts()
        assert sum(float(share.removesuffix(" %")) for share in shares) == pytest.approx(100, abs=1)
        assert page.locator("#status").inner_text() == f"This looks like a {int(expected.argmax())}."
        assert page.locator("li.best span:first-child").inner_text() == str(int(expected.argmax()))
        heights = page.eval_on_selector_all("#scores li", "rows => rows.map(row => row.offsetHeight)")
        assert len(set(heights)) == 1
        colours = page.eval_on_selector_all(
            "#board div", "all => all.map(item => getComputedStyle(item).backgroundColor)"
        )
        assert len(set(colours)) == 3
        assert not any("0)" in colour and "rgba" in colour for colour in colours)
        assert seen.overflow == 0
        assert seen.colours() > 4
        page.locator("#clear").click()
        with torch.no_grad():
            blank = float(model(torch.zeros(1, 8, 8))[0, 0])
        page.wait_for_function(
            "wanted => Math.abs(Number(document.querySelector('li').dataset.score) - wanted) < 1e-4", arg=blank
        )
    assert seen.console == []
    assert all(request.startswith(address) for request in seen.requests)
    assert any(request.endswith(".wasm") for request in seen.requests)


def test_the_page_says_what_is_wrong(digits: tuple[Path, torch.nn.Module], open_page: OpenPage) -> None:  # noqa: F811
    """Here, a model without its functions: the page has no kernels."""
    from oneop.inspection.rewriting import strip

    folder, _ = digits
    strip(folder / "digits.onnx", folder / "bare.onnx")
    with server(folder) as address:
        page = open_page(f"{address}/index.html?model=bare.onnx", width=380).page
        page.wait_for_selector("#status.failed", timeout=60_000)
        assert page.locator("#status").inner_text().startswith("bare.onnx does not load: ")


def test_a_narrow_dark_page(digits: tuple[Path, torch.nn.Module], open_page: OpenPage) -> None:  # noqa: F811
    with server(digits[0]) as address:
        seen = open_page(f"{address}/index.html", width=380, dark=True)
        seen.page.wait_for_function("document.getElementById('status').textContent.startsWith('Paint')", timeout=60_000)
        assert seen.overflow == 0


def test_other_dtypes_and_ranks_in_the_browser(node_modules: Path, tmp_path: Path, open_page: OpenPage) -> None:  # noqa: F811
    """Functions that have to decide, which is what oneop writes where calls need different bodies."""
    (tmp_path / "node_modules").symlink_to(node_modules)
    scaled_linear = cases.operator()

    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            return scaled_linear(scaled_linear(x, weight, None, alpha=2.0), weight, bias, alpha=0.5)

    inputs = (torch.arange(6.0).reshape(2, 3), torch.arange(9.0).reshape(3, 3), torch.arange(3.0))
    export_quietly(Mixed(), inputs, tmp_path / "mixed.onnx")
    (tmp_path / "index.html").write_text("<!doctype html><title>mixed</title><link rel=icon href=data:,>")
    code = """async values => {
        const ort = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
        ort.env.wasm.numThreads = 1;
        const session = await ort.InferenceSession.create("/mixed.onnx");
        const feeds = Object.fromEntries(values.map(([name, data, dims]) =>
            [name, new ort.Tensor("float32", Float32Array.from(data), dims)]));
        return Array.from((await session.run(feeds))[session.outputNames[0]].data);
    }"""
    values = [
        [name, value.flatten().tolist(), list(value.shape)]
        for name, value in zip(("x", "weight", "bias"), inputs, strict=True)
    ]
    with server(tmp_path) as address:
        found = open_page(f"{address}/index.html").page.evaluate(code, values)
    with torch.no_grad():
        np.testing.assert_allclose(found, Mixed()(*inputs).flatten().numpy(), rtol=1e-5)
