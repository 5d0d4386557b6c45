"""Run the benchmarks, print a table for each, and print whether each target is met."""

import json
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    bench_batcher,
    bench_batches,
    bench_buckets,
    bench_checker,
    bench_copyflags,
    bench_draining,
    bench_effects,
    bench_glob,
    bench_join,
    bench_leases,
    bench_life,
    bench_memory,
    bench_offsets,
    bench_peers,
    bench_ring,
    bench_select,
    bench_units,
)
from benchmarks._harness import Report, Scale

BENCHMARKS: dict[str, Callable[[Scale], list[Report]]] = {
    "life": bench_life.run,
    "batches": bench_batches.run,
    "memory": bench_memory.run,
    "join": bench_join.run,
    "units": bench_units.run,
    "ring": bench_ring.run,
    "select": bench_select.run,
    "buckets": bench_buckets.run,
    "glob": bench_glob.run,
    "effects": bench_effects.run,
    "batcher": bench_batcher.run,
    "draining": bench_draining.run,
    "copyflags": bench_copyflags.run,
    "offsets": bench_offsets.run,
    "leases": bench_leases.run,
    "checker": bench_checker.run,
    "peers": bench_peers.run,
}

RESULTS = Path("build", "bench.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--quick", action="store_true", help="small numbers: see that everything still runs")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"where the raw numbers go; {RESULTS} if left out")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    reports: list[Report] = []
    for name in options.names or BENCHMARKS:
        for report in BENCHMARKS[name](Scale(quick=options.quick)):
            reports.append(report)
            print(report, end="\n\n", flush=True)
    print_verdicts(reports)
    write(options.json or RESULTS, reports)
    return int(options.check and not all(verdict.met for report in reports for verdict in report.verdicts))


def write(file: Path, reports: Sequence[Report]) -> None:
    """Write the raw numbers as JSON, for whoever compares runs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), "reports": [plain(report) for report in reports]}, indent=1)
    file.write_text(text + "\n", "utf-8")
    print(f"\nraw numbers: {file}")


def print_verdicts(reports: Sequence[Report]) -> None:
    print("targets")
    for report in reports:
        for verdict in report.verdicts:
            print(f"  {verdict}")
    print("\nmedians of processor time, cases in turns, garbage collector on; on a busy machine trust the ratios only")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))


def plain(report: Report) -> dict[str, object]:
    data = asdict(report)
    data["verdicts"] = [asdict(verdict) | {"met": verdict.met} for verdict in report.verdicts]
    return data


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
