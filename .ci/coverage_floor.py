"""Print the files whose lines the tests run too little, and the share of all files."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main(floor: float) -> None:
    """Read the data of the last test run; exit code 1: a file is below the floor.

    Args:
        floor: percent of a file's lines.
    """
    coverage = [sys.executable, "-m", "coverage"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run([*coverage, "json", "--quiet", "-o", report], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))
    shares = {name: file["summary"]["percent_covered"] for name, file in found["files"].items()}
    low = sorted((share, name) for name, share in shares.items() if share < floor)
    for share, name in low:
        print(f"{share:5.1f} %  {name}: lines {found['files'][name]['missing_lines']}")
    total = found["totals"]["percent_covered"]
    print(f"{total:.1f} % of {len(shares)} files; {len(low)} files below {floor:g} %")
    sys.exit(bool(low))


if __name__ == "__main__":
    main(float(sys.argv[1]))
