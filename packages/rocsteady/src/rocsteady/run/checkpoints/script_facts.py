"""What a training script says of itself, read from its text and its command; nothing of it is run.

What stands in the command is sure. The default of an option, a keyword of a call or a constant is a
good guess: the script may still do otherwise.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rocsteady_train.untrusted_file import read_head

from rocsteady.model import Value

SIZE_LIMIT = 4 * 1024 * 1024  # bytes of a script
CONFIG_LIMIT = 256 * 1024
CONFIGS = ("config.yaml", "conf/config.yaml", "config/config.yaml", "configs/config.yaml")
BEFORE = ("", "num_", "n_", "max_", "total_", "nb_", "num_train_", "max_train_", "train_")
ALSO = {"iteration": ("iter",), "iter": ("iteration",), "step": ("iteration", "iter")}
TELLS = ("add_argument", "option")  # of argparse, of click
FLAGS = ("store_true", "store_const", "BooleanOptionalAction")
MAY_BE_OUTPUT = ("checkpoint", "ckpt")
RESUMES = (
    "resume_from_checkpoint",
    "resume_from",
    "resume_path",
    "resume_checkpoint",
    "resume",
    "from_checkpoint",
    "load_checkpoint",
    "ckpt_path",
    *MAY_BE_OUTPUT,
)  # options by which scripts are told to go on, the plainest first
GOES_ON = ("resume_from_checkpoint", "ckpt_path")  # keywords of the Trainers


class ScriptOption(Value, frozen=True, kw_only=True):
    flags: tuple[str, ...]  # as they are typed
    line: int
    default: int | None = None
    filled: bool = False  # it has a default that is not empty
    alone: bool = False  # it takes no value
    number: bool = False  # it takes a number
    name: str = ""  # by which the script reads it
    choices: tuple[str, ...] | None = None  # None: any value


class Amount(Value, frozen=True, kw_only=True):
    """How many, who says so, and whether that is sure."""

    count: int
    source: str
    sure: bool


class ScriptFacts(Value, frozen=True, kw_only=True):
    name: str  # of its file; "": there is none that can be read
    options: tuple[ScriptOption, ...] = ()
    numbers: tuple[tuple[str, int, int], ...] = ()  # keyword or constant, its number, its line
    goes_on: int = 0  # the line in which it is told to go on by itself; 0: there is none
    accumulates: bool = False  # it speaks of gradient accumulation
    guarded: bool = False  # it has an if __name__ == "__main__"


def script_in(command: Sequence[str], folder: Path) -> Path | None:
    """Return the script that a command runs, if it is a file of the user's."""
    for before, word in zip(("", *command), command, strict=False):
        module = word.replace(".", "/")
        names = (f"{module}.py", f"{module}/__main__.py") if before == "-m" else (word,)
        for path in (folder / name for name in names):
            if path.suffix == ".py" and os.path.isfile(path):  # noqa: PTH113 - it may not be reached
                return path
    return None


def scripts_here(folder: Path) -> tuple[str, ...]:
    """Name what looks like the training script: train*.py and main.py, those with a main first."""
    found = (*sorted(folder.glob("train*.py")), folder / "main.py")
    there = [path.name for path in found if path.is_file()]
    guarded = [name for name in there if read_facts(folder / name).guarded]
    return tuple(guarded or there)


def read_facts(path: Path | None) -> ScriptFacts:
    """Read a script; one that cannot be read says nothing."""
    if path is None:
        return ScriptFacts(name="")
    try:
        tree = ast.parse(read_head(path, SIZE_LIMIT))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ScriptFacts(name="")
    nodes = list(ast.walk(tree))
    constants = {
        name: number
        for name, number, _ in _assigned(each for each in nodes if isinstance(each, ast.stmt))
    }
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    keywords = [each for call in calls for each in call.keywords]
    return ScriptFacts(
        name=path.name,
        options=tuple(option_of(call) for call in calls if declares_option(call)),
        numbers=(
            *_numbers(keywords, constants),
            *_assigned(each for each in nodes if isinstance(each, ast.stmt)),
        ),
        goes_on=next((key.value.lineno for key in keywords if _goes_on(key)), 0),
        accumulates=any("accumulat" in key for key in _names(nodes)),
        guarded=any(isinstance(each, ast.If) and _is_main(each.test) for each in tree.body),
    )


def amounts(
    word: str, command: Sequence[str], facts: ScriptFacts, folder: Path
) -> Iterator[Amount]:
    """Yield how many of something are to be made, the surest first."""
    names = {f"{before}{each}s" for each in (word, *ALSO.get(word, ())) for before in BEFORE}
    flags = {flag: option for option in facts.options for flag in option.flags}
    for key, value in _given(command):
        option = flags.get(key)
        keys = {_bare(flag) for flag in option.flags} if option else {_bare(key)}
        if keys & names and value.isdecimal() and int(value):
            yield Amount(count=int(value), source=f"{key} in the command", sure=True)
    for option in facts.options:
        if option.default and names & {_bare(flag) for flag in option.flags}:
            source = f"the default of {option.flags[-1]} in {facts.name}, line {option.line}"
            yield Amount(count=option.default, source=source, sure=False)
    yield from _in_configs(names, command, folder)
    found = [each for each in facts.numbers if each[0].lower() in names and each[1] > 0]
    if len({number for _, number, _ in found}) == 1:
        name, number, line = found[0]
        yield Amount(count=number, source=f"{name} in {facts.name}, line {line}", sure=False)


def defaults_of(options: Sequence[ScriptOption], command: Sequence[str]) -> tuple[str, ...]:
    """Return the numbers that options have where a command does not give them, as typed."""
    given = {key for key, _ in _given(command)}
    unsaid = (it for it in options if it.flags and given.isdisjoint(it.flags))
    left = [it for it in unsaid if it.default is not None]
    return tuple(word for it in left for word in (it.flags[-1], str(it.default)))


def resume_option(facts: ScriptFacts) -> ScriptOption | None:
    """Return the option by which the script is told to go on from a checkpoint."""
    for name in RESUMES:
        for option in facts.options:
            named = name in {_bare(flag) for flag in option.flags}
            output = name in MAY_BE_OUTPUT and option.filled
            if named and not option.number and not output:
                return option
    return None


def _given(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options and overrides of a command: --epochs 10, --epochs=10, train.epochs=10."""
    for index, word in enumerate(command):
        key, equals, value = word.lstrip("+").partition("=")
        if equals:
            yield key, value
        elif word.startswith("-"):
            yield key, command[index + 1] if index + 1 < len(command) else ""


def _bare(key: str) -> str:
    return key.lstrip("-").rpartition(".")[2].replace("-", "_").lower()


def _in_configs(names: Collection[str], command: Sequence[str], folder: Path) -> Iterator[Amount]:
    """Read one number from a plain line of a YAML file; more than one is no answer."""
    values = [value for _, value in _given(command)]
    named = [word for word in (*command, *values) if word.endswith((".yaml", ".yml"))]
    for name in dict.fromkeys((*named, *CONFIGS)):
        try:
            text = read_head(folder / name, CONFIG_LIMIT).decode()
        except (OSError, UnicodeDecodeError):
            continue
        found = re.findall(r"(?m)^[ ]*([A-Za-z_]+)[ ]*:[ ]*([0-9]{1,12})[ ]*(?:#.*)?$", text)
        numbers = {(key, int(value)) for key, value in found if key.lower() in names}
        if len(numbers) == 1:
            key, number = numbers.pop()
            if number:
                yield Amount(count=number, source=f"{key} in {name}", sure=False)


def declares_option(call: ast.Call) -> bool:
    """Return whether a call is add_argument of argparse, or option of click."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in TELLS and any(flag.startswith("-") for flag in _texts(call.args))


def option_of(call: ast.Call) -> ScriptOption:
    keywords = {key.arg: key.value for key in call.keywords}
    default, type_, action = keywords.get("default"), keywords.get("type"), keywords.get("action")
    action_name = name_of(action) or str(getattr(action, "value", ""))
    texts, choices = _texts(call.args), keywords.get("choices")
    flags = tuple(sorted((flag for flag in texts if flag[:1] == "-"), key=len))
    named = [
        *_texts([keywords["dest"]] if "dest" in keywords else []),
        *(t for t in texts if t[:1] != "-"),
    ]
    return ScriptOption(
        flags=flags,
        name=named[0] if named else flags[-1].lstrip("-").replace("-", "_"),
        choices=tuple(_texts(choices.elts))
        if isinstance(choices, ast.List | ast.Tuple)
        else None
        if choices is None
        else (),
        line=call.lineno,
        default=_number(default, {}),
        filled=default is not None and getattr(default, "value", True) not in {None, ""},
        alone=action_name in FLAGS or getattr(keywords.get("is_flag"), "value", None) is True,
        number=name_of(type_) in {"int", "float", "bool"},
    )


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


def name_of(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _number(node: ast.expr | None, constants: dict[str, int]) -> int | None:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(
    keywords: Sequence[ast.keyword], constants: dict[str, int]
) -> Iterator[tuple[str, int, int]]:
    for key in keywords:
        number = _number(key.value, constants)
        if key.arg and number is not None:
            yield key.arg, number, key.value.lineno


def _assigned(statements: Iterator[ast.stmt]) -> Iterator[tuple[str, int, int]]:
    """Yield names that are given a number, as EPOCHS = 10 or, in a dataclass, epochs: int = 10."""
    for each in statements:
        if isinstance(each, ast.Assign):
            targets = each.targets
        elif isinstance(each, ast.AnnAssign):
            targets = [each.target]
        else:
            continue
        number = _number(each.value, {})
        for target in targets:
            name = name_of(target)
            if name and number is not None:
                yield name, number, each.lineno


def _goes_on(key: ast.keyword) -> bool:
    """Whether a Trainer is asked to resume."""
    nothing = isinstance(key.value, ast.Constant) and not key.value.value
    return key.arg in GOES_ON and not nothing


def _names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for field in ("id", "attr", "arg", "value"):
            text = getattr(node, field, None)
            if isinstance(text, str):
                yield text.lower()


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test))
