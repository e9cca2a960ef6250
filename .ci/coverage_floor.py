"""Print the files whose functions the tests run too little, and the share of all files.

Lines outside of functions are those that an import runs. They do not count: which test imports a
module first, and whether that one is traced, differs from run to run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(floor: float) -> None:
    """Read the data of the last test run; exit code 1: a file is below the floor.

    Args:
        floor: percent of the lines in a file's functions.
    """
    coverage = [sys.executable, "-m", "coverage"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([*coverage, "combine", "--quiet"], check=True)
        subprocess.run([*coverage, "json", "--quiet", "-o", report], check=True)
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    counts = {name: in_functions(file) for name, file in files.items()}
    counts = {name: count for name, count in counts.items() if sum(count)}
    low = 0
    for name, (run, missing) in sorted(counts.items(), key=lambda one: share(*one[1])):
        if share(run, missing) < floor:
            low += 1
            print(f"{share(run, missing):5.1f} %  {name}: lines {lines_missing(files[name])}")
    total = share(sum(run for run, _ in counts.values()), sum(m for _, m in counts.values()))
    print(f"{total:.1f} % of {len(counts)} files; {low} files below {floor:g} %")
    sys.exit(bool(low))


def in_functions(file: dict[str, Any]) -> tuple[int, int]:
    """Return how many lines of a file's functions were run, and how many were not."""
    summaries = [of["summary"] for name, of in file["functions"].items() if name]
    run = sum(summary["covered_lines"] for summary in summaries)
    return run, sum(summary["missing_lines"] for summary in summaries)


def lines_missing(file: dict[str, Any]) -> list[int]:
    """Return the lines of a file's functions that were not run."""
    functions = [of for name, of in file["functions"].items() if name]
    return sorted(line for of in functions for line in of["missing_lines"])


def share(run: int, missing: int) -> float:
    """Return the percentage of lines that were run."""
    return 100 * run / max(run + missing, 1)


if __name__ == "__main__":
    main(float(sys.argv[1]))
