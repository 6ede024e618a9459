"""Training on two processes (gloo) with PyTorch's own engines, and DTensors."""

from pathlib import Path

from distributed import processes

HERE = Path(__file__).parent


def test_two_processes(tmp_path: Path) -> None:
    """All cases in one pair of processes: it takes longer to start one than to run them."""
    found = processes.failures([HERE / "engine_cases.py", HERE / "dtensor_cases.py"], tmp_path)
    assert not found, "\n\n".join(f"{name}:\n{text}" for name, text in found.items())


def test_failures_are_seen(tmp_path: Path) -> None:
    """A case that fails, one process that ends early, and no case at all, each make a failure."""
    cases = tmp_path / "bad_cases.py"
    cases.write_text(
        "def case_bad(rank):\n    assert rank == 0, 'it is not rank 0'\n\n"
        "def case_exit(rank):\n    raise SystemExit(3)\n"
    )
    found = processes.failures([cases], tmp_path)
    assert "it is not rank 0" in found.pop("case_bad (rank 1)")
    assert list(found) == ["process 0 ended with 3", "process 1 ended with 3"]
