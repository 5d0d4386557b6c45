"""Run the benchmarks, print a table for each, and print whether each target is met: by each build that is at hand."""

import gc
import json
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._harness import Report, Row, Scale, Verdict

import keyshared

NAMES = ("life", "batches", "memory", "leases", "join", "ring", "buckets", "glob", "draining", "checker", "peers")
COMPILED_TOO = NAMES[:4]  # what goes through compiled code

BENCHMARKS: dict[str, Callable[[Scale], list[Report]]] = {
    name: import_module(f"benchmarks.bench_{name}").run for name in NAMES
}

RESULTS = Path("build", "bench.json")

Builds = Mapping[str, Sequence[Report]]
"""What was measured, by build."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--quick", action="store_true", help="small numbers: see that everything still runs")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"where the raw numbers go; {RESULTS} if left out")
    parser.add_argument("--compiled", type=Path, metavar="FOLDER", help="where a compiled build lies: measure it, too")
    parser.add_argument("--no-targets", action="store_true", help="print no targets")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    if options.compiled and keyshared.COMPILED:
        parser.error("--compiled is for the pure build, to measure another one beside it")
    if options.quick:
        gc.freeze()  # before each case garbage is collected: nobody has to look through all modules for it
    builds: dict[str, list[Report]] = {"compiled" if keyshared.COMPILED else "pure": []}
    (reports,) = builds.values()
    for name in options.names or BENCHMARKS:
        for report in BENCHMARKS[name](Scale(quick=options.quick)):
            reports.append(report)
            print(report, end="\n\n", flush=True)
    too = [name for name in options.names or BENCHMARKS if name in COMPILED_TOO]
    if options.compiled and too:
        builds["compiled"] = measured_compiled(options.compiled, too, quick=options.quick)
    if not options.no_targets:
        print_verdicts(builds)
    write(options.json or RESULTS, builds)
    verdicts = [verdict for reports in builds.values() for report in reports for verdict in report.verdicts]
    return int(options.check and not all(verdict.met for verdict in verdicts))


def measured_compiled(folder: Path, names: Sequence[str], *, quick: bool) -> list[Report]:
    """Measure the same in a process that imports the build in a folder."""
    print("compiled\n", flush=True)
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "bench.json")
        command = [sys.executable, "-m", "benchmarks", *names, "--no-targets", "--json", str(file)]
        environment = os.environ | {"PYTHONPATH": str(folder.resolve())}
        run(command + ["--quick"] * quick, env=environment, check=True)
        builds = json.loads(file.read_text("utf-8"))["builds"]
    if "compiled" not in builds:
        raise SystemExit(f"error: there is no compiled build in {folder}")
    return [read(report) for report in builds["compiled"]]


def write(file: Path, builds: Builds) -> None:
    """Write the raw numbers as JSON, for whoever compares runs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {"machine": machine(), "builds": {build: list(map(plain, reports)) for build, reports in builds.items()}}
    file.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    print(f"\nraw numbers: {file}")


def print_verdicts(builds: Builds) -> None:
    print("targets")
    by_target: dict[str, dict[str, Verdict]] = {}
    for build, reports in builds.items():
        for verdict in (verdict for report in reports for verdict in report.verdicts):
            by_target.setdefault(verdict.target, {})[build] = verdict
    if len(builds) > 1:
        print("  " + "".join(f"{build:36}" for build in builds))
    for target, verdicts in by_target.items():
        cells = "".join(f"{verdicts.get(build, '')!s:36}" for build in builds)
        print(f"  {cells}{target}")
    print("\nmedians of processor time, cases in turns, garbage collector on; on a busy machine trust the ratios only")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))


def plain(report: Report) -> dict[str, object]:
    data = asdict(report)
    data["verdicts"] = [asdict(verdict) | {"met": verdict.met} for verdict in report.verdicts]
    return data


def read(data: dict[str, Any]) -> Report:
    """Return the report that `plain` has written."""
    rows = [Row(row["case"], tuple(row["values"])) for row in data["rows"]]
    verdicts = [Verdict(each["target"], each["measured"], each["bound"], each["at_most"]) for each in data["verdicts"]]
    return Report(data["title"], tuple(data["columns"]), data["notes"], rows, verdicts)


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
