"""Build the wheel that carries compiled modules: with KEYSHARED_COMPILE=1, by mypyc, from the same sources.

Which modules are compiled stands in pyproject.toml (``[tool.hatch.build.targets.wheel.hooks.custom]``); everything else
stays interpreted, and so does a module that nobody has put there. Without the variable the wheel is the pure one.

mypyc reads a copy of the sources in which four things are said in another way, each on the line where it stood, so
that tracebacks name the right lines:

- every class may be subclassed by interpreted code, copied and pickled, as in the pure build;
- arguments of public methods have no types: mypyc would refuse a wrong one before the library can, with another error;
- an error that is raised from another one is told its cause, which mypyc leaves out;
- signatures and docstrings go into the C code, which has only some signatures of its own.
"""

import ast
import json
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import chdir
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parent
VARIABLE: Final = "KEYSHARED_COMPILE"
GROUP: Final = "keyshared._compiled"

_IMPORT: Final = "; from typing import TYPE_CHECKING, Any as _Any"
_BECAUSE: Final = '; _because = lambda error, cause: (error.__setattr__("__cause__", cause), error)[1]'
_FOR_MYPYC: Final = "if TYPE_CHECKING: from mypy_extensions import mypyc_attr as _mypyc_attr"
_NATIVE: Final = "@_mypyc_attr(allow_interpreted_subclasses=True, serializable=True)"
_NEVER_NATIVE: Final = frozenset({"Enum", "IntEnum", "NamedTuple", "Protocol", "StrEnum"})


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel, if that is asked for."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed to build."""
        wanted: list[str] = self.config["requires"]
        return wanted if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say which files belong to the wheel and that it is of this platform."""
        if version == "editable" or not self._is_wanted():
            return
        self._folder = TemporaryDirectory()
        files = compile_core(self.config, Path(self._folder.name))
        build_data["force_include"] |= {str(path): name for name, path in files.items()}
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # not asked
        """Remove what was compiled."""
        if version != "editable" and self._is_wanted():
            self._folder.cleanup()

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get(VARIABLE) == "1"


def compile_core(config: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Compile modules.

    Args:
        config: The table of the hook: what its lists mean stands beside them.
        folder: For what is made on the way.

    Returns:
        The extension modules, by their place in a wheel.
    """
    check_compiler()
    staged = Staged(ROOT / "src" / "keyshared", config["modules"], config["records"], config["checked"])
    staged.write(folder / "stage")
    built = folder / "built"
    with chdir(folder / "stage"):
        _build(staged, folder / "c", built)
    return {path.relative_to(built).as_posix(): path for path in sorted(built.rglob("*.*")) if path.is_file()}


def check_compiler() -> None:
    """Stop with a plain sentence where nothing can compile C."""
    name = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if sys.platform != "win32" and shutil.which(name) is None:
        sys.exit(f"error: there is no C compiler {name!r}: install one, set CC, or build the pure wheel (make wheel)")


def _build(staged: "Staged", generated: Path, built: Path) -> None:
    from mypyc.build import mypycify  # noqa: PLC0415  # only who compiles has these two
    from setuptools import Distribution  # noqa: PLC0415

    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--explicit-package-bases"]
    # What is wrong with types is for `make types` to say: here arguments have lost theirs.
    options += ["--disable-error-code=arg-type", "--disable-error-code=call-arg"]
    extensions = mypycify(
        [*options, f"--cache-dir={os.devnull}", *(f"keyshared/{name}" for name in staged.modules)],
        opt_level=os.environ.get("KEYSHARED_OPT_LEVEL", "3"),
        debug_level="0",
        target_dir=str(generated),
        group_name=GROUP,
    )
    for file in generated.rglob("__native_*.c"):
        code = documented(file.read_text(encoding="utf-8"), staged)
        file.write_text(with_own_classes(with_whole_state(code), staged), encoding="utf-8")
    command: Any = Distribution({"name": "keyshared", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp, command.inplace = str(built), str(generated / "o"), False
    command.ensure_finalized()
    command.run()


# the sources in the words of mypyc


class Staged:
    """The sources as mypyc reads them.

    Args:
        source: The folder of the package.
        modules: Files in it.
        records: Public classes whose arguments nobody checks, in either build.
        checked: Private classes that check the arguments of public ones for them.
    """

    def __init__(
        self, source: Path, modules: Collection[str], records: Collection[str], checked: Collection[str]
    ) -> None:
        self.modules = tuple(modules)
        self._source = source
        self._texts = {name: (source / name).read_text(encoding="utf-8") for name in modules}
        self._trees = {name: ast.parse(text) for name, text in self._texts.items()}
        self._native = frozenset(cls.name for tree in self._trees.values() for cls in _native_classes(tree))
        self._open = (self._public_classes() | frozenset(checked)) - frozenset(records)

    def write(self, folder: Path) -> None:
        """Write the package to a folder: what is compiled in other words, what it imports as it is."""
        shutil.copytree(self._source, folder / "keyshared", ignore=shutil.ignore_patterns("__pycache__"))
        for name in self.modules:
            (folder / "keyshared" / name).write_text(self.text(name), encoding="utf-8")

    def text(self, module: str) -> str:
        """Return a module in other words, each line where it was."""
        tree = self._trees[module]
        edits = _Edits(self._texts[module])
        document = tree.body[0]
        caused = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.cause is not None]
        edits.put_after(document, _IMPORT + _BECAUSE * bool(caused))
        for raised in caused:
            edits.tell_cause(raised)
        edits.fill((document.end_lineno or 0) + 1, _FOR_MYPYC)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (
                node.name.lstrip("_").startswith("check") or not _is_private(module)
            ):
                self._open_arguments(node, edits)
        for cls in _native_classes(tree):
            self._open_class(cls, module, edits)
        return edits.text()

    def named(self) -> dict[str, ast.ClassDef | ast.FunctionDef]:
        """Return every function, method and native class by the end of its name in C."""
        found: dict[str, ast.ClassDef | ast.FunctionDef] = {}
        for module, tree in self._trees.items():
            stem = Path(module).stem
            found |= {f"{stem}___{node.name}": node for node in tree.body if isinstance(node, ast.FunctionDef)}
            for cls in _native_classes(tree):
                found[cls.name] = cls
                found |= {f"{stem}___{cls.name}___{method.name}": method for method in _methods(cls)}
        return found

    def document(self, module: str) -> str | None:
        """Return the docstring of a module that is named as in an import."""
        tree = self._trees.get(f"{module.partition('.')[2].replace('.', '/')}.py")
        return None if tree is None else ast.get_docstring(tree)

    def constants(self) -> dict[str, ast.expr]:
        """Return the names that stand for a literal at the top of a module, with that."""
        return {
            node.target.id: node.value
            for tree in self._trees.values()
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            if node.value is not None and _is_literal(node.value)
        }

    def _open_class(self, cls: ast.ClassDef, module: str, edits: "_Edits") -> None:
        self._check_class(cls, module)
        edits.fill(min([cls.lineno, *(decorator.lineno for decorator in cls.decorator_list)]) - 1, _NATIVE)
        if cls.name in self._open:
            for method in _methods(cls):
                self._open_arguments(method, edits)

    def _check_class(self, cls: ast.ClassDef, module: str) -> None:
        """Raise what is wrong with a class that is to be compiled."""
        if any("dataclass" in ast.unparse(decorator) for decorator in cls.decorator_list):
            raise ValueError(f"{module}: {cls.name} is a dataclass, which would not stay frozen: keep it interpreted")
        for part in (node for node in ast.walk(cls) if isinstance(node, ast.AnnAssign)):
            if isinstance(part.target, ast.Attribute) and "Final" in _names_in(part.annotation):
                raise ValueError(f"{module}: {ast.unparse(part.target)} is Final, so no copy of it could be made")
        for node in cls.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                text = ast.unparse(node)
                if "ClassVar" not in text and not text.startswith("__slots__ ="):
                    raise ValueError(
                        f"{module}: {text.partition(' =')[0]} is no ClassVar, so no subclass could change it"
                    )
        for base in cls.bases:
            name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            if name in _own_names(self._trees[module]) - self._native:
                raise ValueError(f"{module}: {cls.name} extends {name}, which is interpreted: compile both or none")

    def _open_arguments(self, node: ast.FunctionDef, edits: "_Edits") -> None:
        """Take the types off arguments that a caller may get wrong. Fields that are made of them keep theirs."""
        opened: dict[str, str] = {}
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            hint = argument.annotation
            if hint is not None and not any(name in self._native or name.startswith("_") for name in _names_in(hint)):
                opened[argument.arg] = ast.unparse(hint)
                edits.replace(hint, "_Any")
        if node.name != "__init__":
            return
        anew = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        for statement in node.body:
            match statement:
                case ast.Assign([ast.Attribute(ast.Name("self")) as field], ast.Name(name)) if (
                    name in opened.keys() - anew
                ):
                    edits.put_after(field, f": {opened[name]}")

    def _public_classes(self) -> frozenset[str]:
        """Return the classes that callers have in hand, with what those extend and what extends those."""
        above = {
            cls.name: {name for base in cls.bases for name in _names_in(base)} & self._native
            for tree in self._trees.values()
            for cls in _native_classes(tree)
        }
        public = {
            cls.name
            for module, tree in self._trees.items()
            if not _is_private(module)
            for cls in _native_classes(tree)
            if not cls.name.startswith("_")
        }
        size = 0
        while size != len(public):
            size = len(public)
            public |= {base for name in public for base in above[name]}
            public |= {name for name, bases in above.items() if bases & public}
        return frozenset(public)


class _Edits:
    """Changes of a text that leave each line where it is."""

    def __init__(self, text: str) -> None:
        self._lines = [line.encode() for line in text.split("\n")]
        self._starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))
        self._changes: list[tuple[int, int, bytes]] = []

    def replace(self, node: ast.expr, text: str) -> None:
        """Put something in the place of an expression within brackets."""
        start, stop = self._starts[node.lineno - 1] + node.col_offset, self._end(node)
        self._changes.append((start, stop, text.encode() + b"\n" * ((node.end_lineno or 0) - node.lineno)))

    def put_after(self, node: ast.stmt | ast.expr, text: str) -> None:
        """Put something behind a node."""
        self._changes.append((self._end(node), self._end(node), text.encode()))

    def tell_cause(self, node: ast.Raise) -> None:
        """Tell an error its cause in a call, in the place of ``from``."""
        error, cause = node.exc, node.cause
        if error is None or cause is None or error.end_lineno != cause.lineno:
            raise ValueError(f"line {node.lineno}: the cause of an error has to stand on its last line")
        start = self._starts[error.lineno - 1] + error.col_offset
        self._changes.append((start, start, b"_because("))
        self._changes.append((self._end(error), self._end(cause), f", {ast.unparse(cause)})".encode()))

    def fill(self, line: int, text: str) -> None:
        """Use an empty line."""
        if self._lines[line - 1]:
            raise ValueError(f"line {line} is not empty, there is no place for {text!r}: {self._lines[line - 1]!r}")
        self._changes.append((self._starts[line - 1], self._starts[line - 1], text.encode()))

    def text(self) -> str:
        """Return the text as it is now."""
        text = b"\n".join(self._lines)
        for start, stop, new in sorted(self._changes, reverse=True):
            text = text[:start] + new + text[stop:]
        return text.decode()

    def _end(self, node: ast.stmt | ast.expr) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _native_classes(tree: ast.Module) -> list[ast.ClassDef]:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return [cls for cls in classes if not any(_names_in(base) & _NEVER_NATIVE for base in cls.bases)]


def _own_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module imports from others of the package."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    own = (node for node in imports if (node.module or "").startswith("keyshared."))
    return frozenset(alias.asname or alias.name for node in own for alias in node.names)


def _methods(cls: ast.ClassDef) -> list[ast.FunctionDef]:
    return [method for method in cls.body if isinstance(method, ast.FunctionDef)]


def _is_private(module: str) -> bool:
    return any(part.startswith("_") for part in Path(module).parts)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _names_in(node: ast.expr) -> frozenset[str]:
    """Return the names in an annotation or a base, also where it is written as text."""
    parts = list(ast.walk(node))
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return frozenset([part.id for part in parts if isinstance(part, ast.Name)] + re.findall(r"\w+", " ".join(texts)))


# what is done to the C code

_WHOLE_STATE: Final = """

static int add_to_state(PyObject *state, PyObject *self, PyObject *names) {
    PyObject *name, *iterator = names == NULL ? NULL : PyObject_GetIter(names);
    if (iterator == NULL) return -1;
    while ((name = PyIter_Next(iterator)) != NULL) {
        PyObject *value = PyObject_GetAttr(self, name);
        if (value == NULL) PyErr_Clear();  // not set
        else PyDict_SetItem(state, name, value);
        Py_XDECREF(value);
        Py_DECREF(name);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *whole_state(PyObject *self, PyObject *Py_UNUSED(unused)) {
    PyObject *state = CPyPickle_GetState(self), *copyreg = PyImport_ImportModule("copyreg");
    if (state == NULL || copyreg == NULL) goto fail;
    PyObject *slots = PyObject_CallMethod(copyreg, "_slotnames", "O", (PyObject *)Py_TYPE(self));
    int failed = add_to_state(state, self, slots);
    Py_XDECREF(slots);
    PyObject *fields = failed ? NULL : PyObject_GetAttrString(self, "__dict__");
    if (fields == NULL && !failed) PyErr_Clear();  // it has none
    if (fields != NULL) {
        PyDict_DelItemString(state, "__dict__");
        PyErr_Clear();
        failed = PyDict_Update(state, fields);
        Py_DECREF(fields);
    }
    if (failed) goto fail;
    Py_DECREF(copyreg);
    return state;
fail:
    Py_XDECREF(copyreg);
    Py_XDECREF(state);
    return NULL;
}
"""

_OWN_CLASSES: Final = """

static PyObject *double_underscore;
static PyTypeObject method_type = {PyVarObject_HEAD_INIT(NULL, 0)};

// A method of a builtin type is bound to an object for good. One of this type is bound as a function in Python is.
static PyObject *bind_method(PyObject *method, PyObject *self, PyObject *type) {
    PyObject *bound = PyMethodDescr_Type.tp_descr_get(method, self, type);  // refuses what it refuses
    if (bound == NULL || self == NULL) return bound;
    Py_DECREF(bound);
    return PyMethod_New(method, self);
}

static int ready_methods(void) {
    if (method_type.tp_name != NULL) return 0;
    method_type.tp_name = PyMethodDescr_Type.tp_name;
    method_type.tp_basicsize = PyMethodDescr_Type.tp_basicsize;
    method_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_METHOD_DESCRIPTOR;
    method_type.tp_vectorcall_offset = PyMethodDescr_Type.tp_vectorcall_offset;
    method_type.tp_call = PyMethodDescr_Type.tp_call;
    method_type.tp_repr = PyMethodDescr_Type.tp_repr;
    method_type.tp_dealloc = PyMethodDescr_Type.tp_dealloc;
    method_type.tp_traverse = PyMethodDescr_Type.tp_traverse;
    method_type.tp_methods = PyMethodDescr_Type.tp_methods;
    method_type.tp_members = PyMethodDescr_Type.tp_members;
    method_type.tp_getset = PyMethodDescr_Type.tp_getset;
    method_type.tp_descr_get = bind_method;
    return PyType_Ready(&method_type);
}

// What nobody inside would notice is refused: other methods in a class, another class for its objects, and other
// values of the names in a module.
static int finish_class(PyTypeObject *type) {
    PyObject *value, *copyreg = PyImport_ImportModule("copyreg");
    Py_ssize_t position = 0;
    if (copyreg == NULL || ready_methods() < 0) return -1;
    while (PyDict_Next(type->tp_dict, &position, NULL, &value))
        if (Py_IS_TYPE(value, &PyMethodDescr_Type)) Py_SET_TYPE(value, &method_type);
    PyObject *slots = PyObject_CallMethod(copyreg, "_slotnames", "O", (PyObject *)type);  // it keeps them in the class
    Py_DECREF(copyreg);
    if (slots == NULL) return -1;
    Py_DECREF(slots);
    type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
    PyType_Modified(type);
    return 0;
}

static int refuse_name(PyObject *module, PyObject *name, PyObject *value) {
    if (PyUnicode_Check(name) && PyUnicode_Tailmatch(name, double_underscore, 0, PY_SSIZE_T_MAX, -1))
        return PyModule_Type.tp_setattro(module, name, value);
    PyErr_Format(PyExc_AttributeError, "cannot set %R of %R: it is compiled, and would not look", name, module);
    return -1;
}

static PyTypeObject module_type = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "module", .tp_setattro = refuse_name, .tp_flags = Py_TPFLAGS_DEFAULT,
};

static int finish_module(PyObject *module) {
    module_type.tp_base = &PyModule_Type;  // no constant where Python is a DLL
    if (double_underscore == NULL) double_underscore = PyUnicode_FromString("__");
    if (double_underscore == NULL || PyType_Ready(&module_type) < 0) return -1;
    Py_SET_TYPE(module, &module_type);
    return 0;
}
"""

_TOP: Final = re.compile(r"char result = CPyDef_(?P<module>\w+)_____top_level__\(\);\s*if \(result == 2\)\s*goto fail;")

_TEXT: Final = r'(?P<text>NULL|"(?:[^"\\]|\\.)*")'
_FUNCTION: Final = re.compile(
    rf'(?P<head>\{{"\w+",\s*\(PyCFunction\)CPyPy_(?P<name>\w+),\s*METH_[A-Z_ |]+,\s*PyDoc_STR\(){_TEXT}(?=\))'
)
_CLASS: Final = re.compile(
    rf'(?P<head>\.tp_name = "(?P<name>\w+)",(?:(?!\.tp_name)[\s\S])*?\.tp_doc = PyDoc_STR\(){_TEXT}(?=\))'
)
_PROPERTY: Final = re.compile(
    r'(?P<head>\{"(?P<last>\w+)",\s*\(getter\)(?P<name>\w+?)_get_(?P=last),\s*(?:NULL|\(setter\)\w+),\s*)'
    r"NULL(?=, NULL\})"
)

_MODULE: Final = re.compile(r'(?P<head>PyModuleDef_HEAD_INIT,\s*"(?P<name>[\w.]+)",\s*)NULL(?=, /\* docstring \*/)')


def documented(code: str, staged: Staged) -> str:
    """Return generated C code with the signatures and docstrings of the sources."""
    named, constants = staged.named(), staged.constants()

    def of_function(match: re.Match[str]) -> str:
        node = _find(named, match["name"])
        if not isinstance(node, ast.FunctionDef):
            return match[0]
        in_class = match["name"].count("___", 1) > 1
        return match["head"] + _c_text(_signature(node, constants, in_class=in_class), node)

    def of_class(match: re.Match[str]) -> str:
        cls = named.get(match["name"])
        if not isinstance(cls, ast.ClassDef):
            return match[0]
        init = next(_constructors(cls, named), None)
        text = f"{cls.name}()" if init is None else _signature(init, constants, cls=cls.name)
        return match["head"] + _c_text(text, cls)

    def of_property(match: re.Match[str]) -> str:
        node = _find(named, f"{match['name']}___{match['last']}")
        document = None if node is None else ast.get_docstring(node)
        return match["head"] + ("NULL" if document is None else json.dumps(document))

    def of_module(match: re.Match[str]) -> str:
        document = staged.document(match["name"])
        return match["head"] + ("NULL" if document is None else json.dumps(document))

    answers = ((_FUNCTION, of_function), (_CLASS, of_class), (_PROPERTY, of_property), (_MODULE, of_module))
    for pattern, answer in answers:
        code = pattern.sub(answer, code)
    return code


def with_whole_state(code: str) -> str:
    """Return generated C code that copies and pickles what interpreted subclasses add, in fields or in slots."""
    return _with_helpers(code.replace("(PyCFunction)CPyPickle_GetState", "whole_state"), _WHOLE_STATE)


def with_own_classes(code: str, staged: Staged) -> str:
    """Return generated C code whose methods are bound as functions are, and whose classes and modules do not change."""
    names = sorted(name for name, node in staged.named().items() if isinstance(node, ast.ClassDef))

    def of_module(match: re.Match[str]) -> str:
        classes = [f"CPyType_{match['module']}___{name}" for name in names]
        finished = (f"if (finish_class({cls}) < 0) goto fail;" for cls in classes if f"*{cls};" in code)
        return "\n".join((match[0], *finished, "if (finish_module(module) < 0) goto fail;"))

    code, modules = _TOP.subn(of_module, code)
    if not modules:
        raise ValueError("there is no end of a module in the C code, so its classes would be open: see _TOP")
    return _with_helpers(code, _OWN_CLASSES)


def _with_helpers(code: str, helpers: str) -> str:
    first = code.index("\n\n")
    return code[:first] + helpers + code[first:]


def _find(named: Mapping[str, ast.ClassDef | ast.FunctionDef], name: str) -> ast.ClassDef | ast.FunctionDef | None:
    """Return what has a name in C; of a module, that has as many parts as tell it from others."""
    while name not in named and "___" in name:
        name = name.partition("___")[2]
    return named.get(name)


def _constructors(cls: ast.ClassDef, named: Mapping[str, ast.ClassDef | ast.FunctionDef]) -> Iterator[ast.FunctionDef]:
    """Return the constructors of a class and of what it extends, nearest first."""
    yield from (method for method in _methods(cls) if method.name == "__init__")
    for name in (name for base in cls.bases for name in sorted(_names_in(base))):
        above = named.get(name)
        if isinstance(above, ast.ClassDef):
            yield from _constructors(above, named)


def _signature(
    node: ast.FunctionDef, constants: Mapping[str, ast.expr], *, in_class: bool = False, cls: str | None = None
) -> str:
    """Return a signature in the form that CPython reads; a default that it could not read is ``...``, as in a stub."""

    def shown(default: ast.expr) -> ast.expr:
        if isinstance(default, ast.Name):
            default = constants.get(default.id, default)
        return default if _is_literal(default) else ast.Constant(...)

    given = node.args
    first = [ast.arg(argument.arg) for argument in given.args]
    if cls is not None:  # the object that is made is no argument
        del first[0]
    elif in_class and not any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list):
        first[0].arg = "$" + first[0].arg
    bare = ast.arguments(
        posonlyargs=[ast.arg(argument.arg) for argument in given.posonlyargs],
        args=first,
        vararg=None if given.vararg is None else ast.arg(given.vararg.arg),
        kwonlyargs=[ast.arg(argument.arg) for argument in given.kwonlyargs],
        kw_defaults=[None if default is None else shown(default) for default in given.kw_defaults],
        kwarg=None if given.kwarg is None else ast.arg(given.kwarg.arg),
        defaults=[shown(default) for default in given.defaults],
    )
    return f"{cls or node.name}({ast.unparse(bare)})"


def _c_text(signature: str, node: ast.ClassDef | ast.FunctionDef) -> str:
    return json.dumps(f"{signature}\n--\n\n{ast.get_docstring(node) or ''}")
