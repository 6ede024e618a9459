"""One kernel object under concurrent runs, on one thread and on several."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.ort_models import feeds, model, operator, session


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("base", ["positive", "nested", "affine"])
def test_concurrent_runs_of_one_session(base: str, threads: int) -> None:
    first = np.zeros(1) if base == "positive" else np.zeros((1, 1))
    stated = [tuple("ab"[: first.ndim])]
    made = session(model(operator(base), [first.astype("float32")], shapes=stated), intra_op_num_threads=threads)

    def call(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            sizes = random.integers(1, 70, first.ndim)
            x = random.standard_normal(sizes).astype("float32")
            results = made.run(None, feeds([x]))
            if base == "positive":
                np.testing.assert_array_equal(results[0], x[x > 0])
                np.testing.assert_array_equal(results[1], np.nonzero(x > 0)[0])
            else:
                np.testing.assert_array_equal(results[0], x + 1 if base == "nested" else x)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))


def test_concurrent_sessions_are_made_from_one_library() -> None:
    made = model(operator("affine"), [np.zeros((2, 2), "float32")], {"alpha": 2.0})

    def create(_: int) -> None:
        x = np.ones((2, 2), "float32")
        np.testing.assert_array_equal(session(made).run(None, feeds([x]))[0], 2 * x)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(24)))
