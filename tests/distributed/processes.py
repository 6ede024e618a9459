"""Runs files of cases in two processes that form a gloo group, and reports what failed where.

As a program (``python processes.py RANK STORE REPORT FILE...``) it is one of the two.
"""

import contextlib
import datetime
import importlib.util
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

RANKS = 2
LIMIT = 120.0
"""Seconds until both processes are ended."""


def failures(files: Sequence[Path], folder: Path) -> dict[str, str]:
    """The cases that failed, with their tracebacks; a process that ended badly is one too."""
    reports = [folder / f"report-{rank}.json" for rank in range(RANKS)]
    end = time.monotonic() + LIMIT
    with contextlib.ExitStack() as stack:
        running = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), str(folder / "store"), str(reports[rank]), *map(str, files)],
                stdout=stack.enter_context(open(folder / f"log-{rank}.txt", "w")),
                stderr=subprocess.STDOUT,
            )
            for rank in range(RANKS)
        ]
        try:
            codes = [process.wait(max(0.1, end - time.monotonic())) for process in running]
        except subprocess.TimeoutExpired:
            codes = [process.poll() or -1 for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
    found: dict[str, str] = {}
    ran: set[str] = set()
    for rank, (code, report) in enumerate(zip(codes, reports, strict=True)):
        results = json.loads(report.read_text()) if report.exists() else {}
        ran |= results.keys()
        found |= {f"{name} (rank {rank})": text for name, text in results.items() if text}
        if code != 0:
            log = (folder / f"log-{rank}.txt").read_text()[-4000:]
            found[f"process {rank} ended with {code}"] = log
    if not ran:
        found["no case"] = "nothing was run"
    return found


def main(rank: int, store: str, report: Path, files: Sequence[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=60)
    )
    results: dict[str, str] = {}
    for name, case in [found for file in files for found in cases_of(Path(file))]:
        start = time.monotonic()
        try:
            case(rank)
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
        print(name, f"{time.monotonic() - start:.2f} s", flush=True)
        dist.barrier()
        report.write_text(json.dumps(results))
    dist.destroy_process_group()


def cases_of(file: Path) -> list[tuple[str, Callable[[int], None]]]:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [(name, case) for name, case in vars(module).items() if name.startswith("case_")]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
