"""What the build hook says to mypyc in other words, and what it puts into the C code. No compiler is called here."""

import ast
from pathlib import Path

import hatch_build
import pytest
from hatch_build import Staged, documented, with_own_classes, with_whole_state

SOURCE = '''"""A module."""

from typing import Final

MANY: Final = 3


class Part:
    """A private part."""

    def take(self, size: int) -> None:
        """Take some."""


class Whole(Part):
    """What callers have in hand.

    Example:
        >>> Whole(1).size
        1
    """

    def __init__(self, size: int, part: Part | None = None, *, most: int = MANY) -> None:
        self.size = size
        self.part = part
        most = most or 1
        self.most = most

    @property
    def free(self) -> int:
        """How much is free."""
        return 0
'''


def staged(folder: Path, source: str = SOURCE, name: str = "whole.py", **lists: list[str]) -> Staged:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(source, encoding="utf-8")
    return Staged(folder, [name], lists.get("records", []), lists.get("checked", []))


def test_every_line_stays_where_it_is(tmp_path: Path) -> None:
    before = {node.name: node.lineno for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.FunctionDef)}

    text = staged(tmp_path).text("whole.py")

    assert before == {node.name: node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}


def test_arguments_of_public_classes_and_of_what_they_extend_have_no_types_but_fields_keep_theirs(
    tmp_path: Path,
) -> None:
    text = staged(tmp_path).text("whole.py")

    assert "def take(self, size: _Any) -> None:" in text
    assert "def __init__(self, size: _Any, part: Part | None = None, *, most: _Any = MANY)" in text
    assert "self.size: int = size" in text
    assert "self.most = most" in text  # it is assigned anew, so its type is known


def test_records_and_private_modules_keep_their_types_unless_they_check_for_others(tmp_path: Path) -> None:
    assert "size: int, part" in staged(tmp_path, records=["Part", "Whole"]).text("whole.py")
    assert "size: int, part" in staged(tmp_path, name="_own/whole.py").text("_own/whole.py")
    assert "take(self, size: _Any)" in staged(tmp_path, name="_own/a.py", checked=["Part"]).text("_own/a.py")


def test_every_class_may_be_subclassed_copied_and_pickled(tmp_path: Path) -> None:
    text = staged(tmp_path).text("whole.py")

    assert 2 == text.count("@_mypyc_attr(allow_interpreted_subclasses=True, serializable=True)\nclass ")


def test_an_error_is_told_its_cause_in_a_call(tmp_path: Path) -> None:
    source = SOURCE.replace("return 0", "raise ValueError(1) from None")

    text = staged(tmp_path, source).text("whole.py")

    assert "raise _because(ValueError(1), None)" in text
    assert 1 == text.count("_because = lambda")
    assert "_because" not in staged(tmp_path).text("whole.py")


def test_a_class_that_extends_an_interpreted_one_is_refused(tmp_path: Path) -> None:
    source = SOURCE.replace("from typing import Final", "from keyshared._own import Base, Item").replace(
        "class Part:", "class Part(Base[Item]):"
    )

    with pytest.raises(ValueError, match=r"whole\.py: Part extends Base, which is interpreted"):
        staged(tmp_path, source).text("whole.py")


def test_a_value_of_a_class_that_no_subclass_could_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"whole\.py: many is no ClassVar"):
        staged(tmp_path, SOURCE.replace("def take(", "many = 3\n\n    def take(")).text("whole.py")
    for named in ("many: ClassVar[int] = 3", "__slots__ = ()", "many: int"):
        assert staged(tmp_path, SOURCE.replace("def take(", f"{named}\n\n    def take(")).text("whole.py")


def test_a_dataclass_is_refused_because_it_would_not_stay_frozen(tmp_path: Path) -> None:
    source = SOURCE.replace("class Part:", "@dataclass(frozen=True)\nclass Part:")

    with pytest.raises(ValueError, match=r"whole\.py: Part is a dataclass"):
        staged(tmp_path, source).text("whole.py")


def test_a_field_that_is_final_is_refused_because_no_copy_could_be_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"self\.part is Final"):
        staged(tmp_path, SOURCE.replace("self.part = part", "self.part: Final = part")).text("whole.py")


def test_a_class_without_an_empty_line_before_it_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 7 is not empty"):
        staged(tmp_path, SOURCE.replace("\n\n\nclass Part", "\nONE = 1\n# one\nclass Part")).text("whole.py")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            '{"take",\n (PyCFunction)CPyPy_own___whole___Part___take,\n METH_FASTCALL, PyDoc_STR(NULL)},',
            '"take($self, size)\\n--\\n\\nTake some."',
        ),
        (
            '.tp_name = "Whole",\n .tp_flags = 1,\n .tp_doc = PyDoc_STR("Whole()\\n--\\n\\n"),',
            '"Whole(size, part=None, *, most=3)\\n--\\n\\nWhat callers have',
        ),
        ('{"free",\n (getter)whole___Whole_get_free,\n NULL, NULL, NULL},', 'NULL, "How much is free.", NULL}'),
        ('PyModuleDef_HEAD_INIT,\n "keyshared.whole",\n NULL, /* docstring */', '"A module.", /* docstring */'),
    ],
    ids=["method", "class", "property", "module"],
)
def test_signatures_and_docstrings_come_from_the_source(tmp_path: Path, code: str, expected: str) -> None:
    assert expected in documented(code, staged(tmp_path))


def test_what_mypyc_has_made_by_itself_stays_as_it_is(tmp_path: Path) -> None:
    code = '{"send",\n (PyCFunction)CPyPy_whole___take_gen___send,\n METH_FASTCALL, PyDoc_STR("send($arg)\\n--")},'

    assert code == documented(code, staged(tmp_path))


def test_the_state_of_a_copy_is_whole() -> None:
    table = '{"__getstate__", (PyCFunction)CPyPickle_GetState, METH_NOARGS, NULL},'

    code = with_whole_state(f"#include <init.c>\n\n{table}")

    assert code.endswith('{"__getstate__", whole_state, METH_NOARGS, NULL},')
    assert code.index("#include") < code.index("static PyObject *whole_state(")


def test_finished_classes_and_modules_do_not_change(tmp_path: Path) -> None:
    code = (
        "#include <init.c>\n\nchar result = CPyDef_whole_____top_level__();\n    if (result == 2)\n        goto fail;\n"
        "PyTypeObject *CPyType_whole___Part;\nPyTypeObject *CPyType_whole___take_Part_env;"
    )

    finished = with_own_classes(code, staged(tmp_path))

    assert finished.count("finish_class(CPyType") == 1
    assert "goto fail;\nif (finish_class(CPyType_whole___Part) < 0) goto fail;\nif (finish_module(module)" in finished


def test_code_without_the_end_of_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no end of a module"):
        with_own_classes("#include <init.c>\n\n", staged(tmp_path))


def test_without_a_compiler_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -x")
    monkeypatch.setattr("sys.platform", "linux")

    with pytest.raises(SystemExit, match="there is no C compiler 'no-such-compiler': install one"):
        hatch_build.check_compiler()
