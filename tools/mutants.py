"""Change the core in one place at a time, and see whether a test notices: ``make mutants``.

    python tools/mutants.py [--minutes 20] [--seed N] [--workers 2] [--modules window.py _core]

A mutant is one statement with one thing wrong: another comparison, ``or`` for ``and``, a number off by one, a
condition that is always true, a call left out. Mutants are drawn from all of the core until the time is over. Each is
tried on the tests of its own module, and then, if it lives, on the tests that bring everything together. Who lives is
printed; an entry in tests/mutants.toml says why one is allowed to: it is equivalent, because ... Any other is an error.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "keyshared"
PLACE: Final = ROOT / "build" / "mutants"
ALLOWED: Final = ROOT / "tests" / "mutants.toml"
NOT_THE_CORE: Final = ("spark", "testing", "run", "errors.py", "_core/invariants.py")
LONGEST_S: Final = 300  # a mutant that takes longer hangs, and was noticed

# In the order of the list: what is likely to notice comes first.
OPTIONS: Final = ("--no-cov", "-p", "no:cacheprovider", "-p", "no:randomly")
TOGETHER: Final = (
    "tests/dispatcher",
    "tests/leases",
    "tests/properties/test_more_attacks.py",
    "tests/properties/test_small_worlds.py",
    "tests/properties/test_leases_oracle.py",
    "tests/properties/test_queries_write_nothing.py",
    "tests/test_odd_arguments.py",
    "tests/compatibility",
    "tests/conformance",
)
OTHER_COMPARISON: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATOR: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OTHER_NAME: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "bisect_left": "bisect_right"}


class Mutant(NamedTuple):
    """One thing that is wrong.

    Attributes:
        module: Its path below src/keyshared.
        place: The function, with the classes around it.
        line: The first line of the statement, without its indentation.
        before: What stands there.
        after: What the mutant has instead.
        start: Where that begins, in bytes of the file.
        stop: Where it ends.
    """

    module: str
    place: str
    line: str
    before: str
    after: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """What a person reads, and writes into the list of those that are allowed; says nothing of line numbers."""
        return f"{self.module} {self.place}: {self.line} | {self.before} -> {self.after}"

    def put_into(self, source: bytes) -> bytes:
        """Return the module with the mutant in it."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OTHER_COMPARISON:
            yield ast.Compare(node.left, [OTHER_COMPARISON[type(operator)]()], node.comparators)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OTHER_OPERATOR:
            yield ast.BinOp(left, OTHER_OPERATOR[type(operator)](), right)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Name(id=name) if name in OTHER_NAME:
            yield ast.Name(OTHER_NAME[name])


def _instead(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Return parts of a statement that only it can lose, and what is there then."""
    match statement:
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
            yield test, ast.Constant(value=False)
            if isinstance(statement, ast.If):
                yield test, ast.Constant(value=True)
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in OTHER_OPERATOR:
            yield statement, ast.AugAssign(target, OTHER_OPERATOR[type(operator)](), value)
        case ast.Break():
            yield statement, ast.Continue()
        case ast.Expr(value=ast.Call()):
            yield statement, ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, ast.Constant(value=None)


def _functions(body: Iterable[ast.stmt], place: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{place}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{place}{node.name}", node


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, []))
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from _statements(part.body)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Return the expressions of one statement, without those of statements below it, of annotations and f-strings."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_one = isinstance(child, ast.expr | ast.comprehension | ast.keyword | ast.slice)
            if not is_one or name == "annotation" or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":  # a zip of what is of one length
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _expressions(child)


def mutants_of(module: str, source: bytes) -> Iterator[Mutant]:
    """Return every mutant of a module."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(len(line) for line in lines)]

    for function, node in _functions(ast.parse(source).body):
        for statement in _statements(node.body):
            if isinstance(
                statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
            ):
                continue
            line = lines[statement.lineno - 1].decode().strip()
            changes = [
                *_instead(statement),
                *((each, new) for each in _expressions(statement) for new in _variants(each)),
            ]
            for old, new in changes:
                after = ast.unparse(ast.fix_missing_locations(new))
                after = f"({after})" if isinstance(new, ast.expr) else after
                start = starts[old.lineno - 1] + old.col_offset
                stop = starts[(old.end_lineno or old.lineno) - 1] + (old.end_col_offset or old.col_offset)
                before = " ".join(source[start:stop].decode().split())
                yield Mutant(module, function, line, before, after, start, stop)


def all_mutants(source: Path, only: Iterable[str] = ()) -> list[Mutant]:
    """Return the mutants of the core, or of some modules of it."""
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    wanted = tuple(only)
    chosen = [name for name in names if (name.startswith(wanted) if wanted else not name.startswith(NOT_THE_CORE))]
    return [mutant for name in chosen for mutant in mutants_of(name, (source / name).read_bytes())]


def tests_of(module: str) -> list[str]:
    """Return the tests of a module or its package, where there are some of its own."""
    package, _, name = module.removesuffix(".py").rpartition("/")
    stem = name.strip("_")
    names = {stem, package or stem}
    patterns = [f"tests/{package}/test_{stem}*.py", f"tests/test_{stem}*.py"]
    patterns += [f"tests/properties/test_{name}*.py" for name in sorted(names)]  # such as the oracle of a package
    own = sorted(path for pattern in patterns for path in ROOT.glob(pattern.replace("//", "/")))
    folder = ROOT / "tests" / package
    return [str(path) for path in (*own, *([folder] if package and folder.is_dir() else []))]


class Laboratory:
    """A copy of the package in which one mutant lives at a time."""

    def __init__(self, number: int) -> None:
        self.home = PLACE / str(number)
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(SOURCE, self.home / "keyshared", ignore=shutil.ignore_patterns("__pycache__"))

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails because of it."""
        path, source = self.home / "keyshared" / mutant.module, (SOURCE / mutant.module).read_bytes()
        path.write_bytes(mutant.put_into(source))
        try:
            return any(self._fails(tests) for tests in (tests_of(mutant.module), list(TOGETHER)) if tests)
        finally:
            path.write_bytes(source)

    def _fails(self, tests: list[str]) -> bool:
        here = os.environ | {"PYTHONPATH": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        call = [sys.executable, "-m", "pytest", "-x", "-q", *OPTIONS]
        try:
            ended = subprocess.run(
                [*call, *tests], cwd=ROOT, env=here, capture_output=True, timeout=LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        return ended.returncode != 0


def living(mutants: Iterable[Mutant], workers: int, until: float) -> tuple[int, list[Mutant]]:
    """Try mutants until the time is over; return how many were tried, and those that nobody noticed."""
    waiting = iter(mutants)
    free = [Laboratory(number) for number in range(workers)]
    tried, lived = 0, []

    def work(laboratory: Laboratory) -> list[tuple[Mutant, bool]]:
        seen = []
        while time.monotonic() < until:
            with lock:
                mutant = next(waiting, None)
            if mutant is None:
                break
            seen.append((mutant, laboratory.notices(mutant)))
        return seen

    lock = Lock()
    with ThreadPoolExecutor(workers) as pool:
        for seen in pool.map(work, free):
            tried += len(seen)
            lived += [mutant for mutant, noticed in seen if not noticed]
    return tried, lived


def allowed(path: Path) -> dict[str, str]:
    """Return why a mutant may live, by its name."""
    entries = tomllib.loads(path.read_text("utf-8")).get("mutant", []) if path.exists() else []
    return {entry["name"]: entry["because"] for entry in entries}


def main() -> int:
    """Draw, try, and print who lives."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400, help="another sample; one for each day")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--modules", nargs="*", default=(), help="below src/keyshared, such as window.py _core")
    asked = parser.parse_args()
    reasons = allowed(ALLOWED)
    mutants = [mutant for mutant in all_mutants(SOURCE, asked.modules) if mutant.name not in reasons]
    random.Random(asked.seed).shuffle(mutants)  # noqa: S311  # a sample, no secret
    tried, lived = living(mutants, asked.workers, time.monotonic() + 60 * asked.minutes)
    print(
        f"seed {asked.seed}: {tried} of {len(mutants)} mutants tried, {tried - len(lived)} noticed, {len(lived)} live"
    )
    print(f"{len(reasons)} more may live, as {ALLOWED.relative_to(ROOT)} says")
    for mutant in sorted(lived):
        print(f"\n{mutant.name}")
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
