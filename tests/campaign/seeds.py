"""Asks `oneop check --quick` about the correct operators with many seeds, which takes longer than tests may:

    PYTHONPATH=tests python -m campaign.seeds 50                  # the eager column and the program outside Python
    PYTHONPATH=tests python -m campaign.seeds 4 --every-column    # all that is installed

Prints each false alarm, and how much was asked. The exit status is 1 where there was one.
"""

import argparse
import sys
import time

from campaign.asking import EAGER
from campaign.planting import NAMES, correct
from oneop.check.console import failures_text
from oneop.check.running import check


def main() -> int:
    parser = argparse.ArgumentParser(description="Asks about the correct operators with many seeds.")
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--every-column", action="store_true")
    given = parser.parse_args()
    begin, alarms, calls, cells = time.monotonic(), 0, 0, 0
    for seed in range(given.first, given.first + given.seeds):
        for name in NAMES:
            report = check(correct(name), quick=True, seed=seed, columns=None if given.every_column else [EAGER])
            alarms += len(report.failures)
            calls += sum(result.examples for result in report.results)
            cells += sum(result.status == "passed" for result in report.results)
            if not report.ok:
                print(failures_text(report), flush=True)
        print(
            f"seed {seed}: {alarms} false alarms so far, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True
        )
    print(f"{given.seeds} seeds, {len(NAMES)} operators: {cells} cells passed, {calls} calls, {alarms} false alarms")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
