"""How a command goes on from a checkpoint, read from the command and the text of its script.

Nothing is run. What is read from a script is a good guess: names are followed through assignments
and calls, not values. So the first restart by such a way is checked while it runs
(run/checkpoints/resume_trial.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_head

from rocsteady.doctor.knowledge.resume_arguments import resume_argument
from rocsteady.doctor.knowledge.trainers import Prevents, Trainer, library_of, trainer_of
from rocsteady.model import Value
from rocsteady.run.checkpoints.script_facts import (
    CONFIG_LIMIT,
    SIZE_LIMIT,
    ScriptOption,
    declares_option,
    name_of,
    option_of,
    script_in,
)
from rocsteady.run.job.values import CHECKPOINT

MAX_MODULES = 60  # of the user's own that a script imports
CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
UNKNOWN_CHECKPOINT = "CHECKPOINT"  # in what is shown, where the text does not name one
_OPTIONS = re.compile(r"resum|ckpt|checkpoint|(^|_)load|restor|contin|snapshot|restart|recover")
_OTHER_OPTIONS = re.compile(
    r"pretrain|weight|teacher|backbone|finetun|every|interval|freq|num|save"
)
_COUNTER = re.compile(r"(?i)epoch|step|iter|batch|round|update|done|progress|seen")
_FIRST = re.compile(r"(?i)epoch|step|iter|start|begin|done|first|round")
_OWN_COUNT = re.compile(r"(?:global_|current_|completed_)?(?:step|epoch|iteration)s?")
_OPTIMIZER = re.compile(r"(?i)opt")
_MAKES_TRAINER = re.compile(r"Trainer$")
_MAKES_OPTIMIZER = re.compile(r"optim|Ada|SGD|RMSprop|Lion|Muon|LBFGS")
_CHECKPOINT_NAME = re.compile(r"(?i)(checkpoint|ckpt|last|latest|snapshot|state)")
_CHECKPOINT_FILE = re.compile(r"[\w./-]+\.(pt|pth|ckpt|tar)")
CONTINUES = ("resume", "latest", "last", "auto", "continue")  # what an option is compared with
# What asks whether there is a checkpoint.
LOOKS = frozenset([
    "exists", "isfile", "is_file", "isdir", "is_dir", "glob", "rglob", "iglob", "listdir",
    "iterdir", "scandir", "get_last_checkpoint", "get_checkpoint", "latest_checkpoint",
    "last_checkpoint", "FileNotFoundError", "OSError", "IOError",
])  # fmt: skip
OF_TIME = frozenset([
    "now", "utcnow", "today", "strftime", "time", "time_ns", "getpid", "uuid1", "uuid4",
    "token_hex", "mkdtemp",
])  # fmt: skip
NO_LOADS = frozenset([
    "json", "yaml", "toml", "tomllib", "np", "numpy", "OmegaConf", "wandb", "config", "cfg",
    "librosa", "audio",
])  # fmt: skip
LIBRARY_LOADS = frozenset(
    ["load_checkpoint", "load_state", "restore", "restore_checkpoint", "load_training_state"]
)
OPTIMIZER_LOADS = frozenset(
    ["load_state_dict", "set_optimizer_state_dict", "set_state_dict", "load_optimizer_state_dict"]
)
KEYWORDS = {"resume_from_checkpoint": "train", "ckpt_path": "fit", "resume": "train"}
SAVES = {"save": 1, "save_state": 0, "save_checkpoint": 0, "save_file": 1}  # and where the path is
FOLDERS = ("makedirs", "mkdir")
OF_PARAMETERS = ("fire.Fire", "Fire", "typer.run")  # make options of a function's parameters
DEEPSPEED = "deepspeed.initialize("  # its engine looks itself whether there is a checkpoint
# Of rocsteady_train: they report where they save, and resume.
LIBRARY_CLASSES = ("Loop", "Checkpointer")


class ResumeSign(Enum):
    """What tells that a command resumes."""

    COMMAND = "the command"
    TRAINER = "a known trainer"
    OPTION = "an option of the script"
    ITSELF = "the script loads its own checkpoint"
    UNKNOWN = "nothing"


class ResumeMethod(Value, frozen=True, kw_only=True):
    """How a command goes on from a checkpoint, or why it does not."""

    how: ResumeSign
    arguments: tuple[str, ...] = ()  # added to the command; the checkpoint is "{checkpoint}"
    variable: str = ""  # of the environment, that names the checkpoint
    where: str = ""  # it was found: "train.py:31", or the name of the trainer
    checkpoint: str = ""  # as the text names it
    given: str = ""  # the path that the command has already for the same option
    why_not: str = ""
    code: tuple[str, ...] = ()  # what to write instead
    by_trainer: bool = False  # it could, with --resume-trainer
    reports: str = ""  # where it makes our Loop or Checkpointer, which tells when it runs
    checkpoints: tuple[str, ...] = ()  # patterns, as far as they are known without a run
    untried: bool = False  # of a trainer whose source was only read
    complete: tuple[str, ...] = ()  # what a checkpoint has, or it is cut off: "checkpoint-*/state"
    last: tuple[str, ...] = ()  # names of the file that repeats the newest of those beside it

    @property
    def inferred(self) -> bool:
        """Whether it is only known from a text: the script's, or an untried trainer's."""
        return self.how in (ResumeSign.OPTION, ResumeSign.ITSELF) or self.untried

    @property
    def words(self) -> str:
        """What happens if the run fails, for people."""
        if self.reports:
            return f"resumes by itself (found in {self.reports})"
        if self.how is ResumeSign.UNKNOWN:
            return "cannot resume: once it has saved, or after 10 min, a hang or a crash ends it"
        if self.how is ResumeSign.ITSELF:
            return f"resumes by itself (found in {self.where})"
        if self.variable == wire.RESUME_TRAINER:
            return f"--resume-trainer gives the newest checkpoint to {self.where}"
        shown = self.checkpoint or UNKNOWN_CHECKPOINT
        words = (f"{self.variable}={CHECKPOINT}",) if self.variable else self.arguments
        typed = " ".join(words).replace(CHECKPOINT, shown)
        instead = f" in place of {self.given}, if that holds training state" if self.given else ""
        way = f"resumes with {typed}{instead}" if words else "resumes by itself"
        if self.how is ResumeSign.TRAINER:
            folders = dict.fromkeys(f"{Path(each).parent}/" for each in self.checkpoints)
            saves = f"; checkpoints in {', '.join(folders)}" if folders else ""
            return f"{self.where}: {way}{saves}"
        return way if self.how is ResumeSign.COMMAND else f"{way} (found in {self.where})"


def detect_resume(
    command: Sequence[str], folder: Path, *, resume_trainer: bool = False
) -> ResumeMethod:
    """Return how a command that runs in a folder resumes; the first way that applies."""
    trainer = trainer_of(command, folder)
    if argument := resume_argument(command):
        complete = trainer.complete if trainer else ()
        return ResumeMethod(how=ResumeSign.COMMAND, arguments=(argument,), complete=complete)
    if trainer:
        return _of_trainer(trainer, _TrainerSettings(command, folder))
    script = script_in(command, folder)
    if script is None:
        return ResumeMethod(how=ResumeSign.UNKNOWN)
    program = Program(script, folder)
    if not program.nodes:
        return _unknown()
    detection = _Detection(program, command)
    method = detection.method()
    ours = [call for call in program.calls if name_of(call.func) in LIBRARY_CLASSES]
    if method.how is ResumeSign.UNKNOWN and ours and "rocsteady_train" in program.text:
        return replace(method, reports=program.where(ours[0]))
    library = library_of(program.text)
    if library is not None:
        if method == _unknown():
            call, receiver = detection.only_call(library.call)
            method = _of_library(library, call, receiver, resume_trainer=resume_trainer)
        method = _with_library(method, library, _TrainerSettings(command, folder, script))
    return method


def _unknown(why: str = "") -> ResumeMethod:
    return ResumeMethod(how=ResumeSign.UNKNOWN, why_not=why)


def _of_trainer(trainer: Trainer, settings: _TrainerSettings) -> ResumeMethod:
    prevented = settings.prevented(trainer.prevents)
    if trainer.cannot or prevented:
        return _unknown(f"{trainer.name}: {trainer.cannot or prevented}")
    takes_path = trainer.arguments[1:2] == (CHECKPOINT,)
    given = _given(settings.command, trainer.arguments[:takes_path])
    return ResumeMethod(
        how=ResumeSign.TRAINER,
        arguments=trainer.arguments,
        where=trainer.name,
        given=given or "",
        checkpoints=settings.checkpoints(trainer),
        complete=trainer.complete,
        untried=not trainer.tried,
    )


def _of_library(
    library: Trainer, call: str, receiver: str, *, resume_trainer: bool
) -> ResumeMethod:
    if call and resume_trainer:
        return ResumeMethod(
            how=ResumeSign.TRAINER, variable=wire.RESUME_TRAINER, where=call, untried=True
        )
    why = f"{call or library.name}: {library.hint}"
    if resume_trainer and library.call:
        why += f" (--resume-trainer needs exactly one {library.call}() of a trainer, in no loop)"
    code = library.code
    if receiver.isidentifier():
        code = tuple(re.sub(r"\btrainer\.", f"{receiver}.", line) for line in code)
    return replace(_unknown(why), code=code, by_trainer=bool(call))


def _with_library(
    method: ResumeMethod, library: Trainer, settings: _TrainerSettings
) -> ResumeMethod:
    """Add what is known of the library that a script uses."""
    if prevented := settings.prevented(library.prevents):
        return _unknown(f"{library.name}: {prevented}")
    if method.how is ResumeSign.UNKNOWN:
        return method
    return replace(
        method,
        checkpoints=settings.checkpoints(library),
        complete=library.complete,
        last=library.last,
    )


class _TrainerSettings:
    """What a trainer is told: by its command, by the files that this names, by its script."""

    def __init__(self, command: Sequence[str], folder: Path, script: Path | None = None) -> None:
        self.command = command
        names = [word.rpartition("=")[2] for word in command]
        named = [name for name in names if name.endswith(CONFIG_SUFFIXES)]
        self._texts = {name: _text(folder / name) for name in named}
        if script is not None:
            self._texts[script.name] = _text(script)

    def first(self, key: str) -> tuple[str, str] | None:
        """Return the value of a key and where it stands; what is typed goes before files."""
        flags = (f"--{key}", f"--{key.replace('_', '-')}", key)
        given = _given(self.command, flags)
        if given is not None:
            return given or "true", f"the command has {key}"
        line = re.compile(
            rf"""(?m)^[^#\n]*?(?<![\w-])["']?{re.escape(key)}["']?[ \t]*[:=][ \t]*["']?"""
            r"""([^"',\s#})]+)"""
        )
        for name, text in self._texts.items():
            if found := line.search(text):
                number = text.count("\n", 0, found.start(1)) + 1
                return found[1], f"{name}:{number} has {key}: {found[1]}"
        return None

    def prevented(self, prevents: Iterable[Prevents]) -> str:
        """Return why the trainer does not resume as it is configured, and the line to change."""
        for each in prevents:
            if not all(self._is(key, values) for key, values in each.beside.items()):
                continue
            found = self.first(each.key)
            missing = found is None and not each.values
            if found is not None and found[0].lower() in each.values:
                return f"{found[1]}, so {each.why}; write {each.change}"
            if missing:
                return f"there is no {each.key}, so {each.why}; add {each.change}"
        return ""

    def _is(self, key: str, values: Collection[str]) -> bool:
        found = self.first(key)
        return found is not None and found[0].lower() in values

    def checkpoints(self, trainer: Trainer) -> tuple[str, ...]:
        """Return the patterns of what it saves; none if its folder is not known."""
        given = (found[0] for key in trainer.output if (found := self.first(key)))
        output = next(given, trainer.default_output).rstrip("/")
        if not output or not re.fullmatch(r"[\w./ -]+", output):  # made by code, or a pattern
            return ()
        return tuple(each.replace("{output}", output) for each in trainer.checkpoints)


def _text(path: Path) -> str:
    try:
        return read_head(path, CONFIG_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _given(command: Sequence[str], flags: Iterable[str]) -> str | None:
    """Return the value that a command has for an option; None if it does not have the option."""
    for flag in flags:
        for at, word in enumerate(command):
            if word == flag:
                value = command[at + 1] if at + 1 < len(command) else ""
                return "" if value.startswith("-") else value
            if word.startswith(f"{flag.rstrip('=')}="):
                return word.partition("=")[2]
    return None


class Program:
    """A script and the user's own modules that it imports, as syntax trees."""

    def __init__(self, script: Path, folder: Path) -> None:
        self.nodes: list[ast.AST] = []
        self._parents: dict[ast.AST, ast.AST] = {}
        self._files: dict[ast.AST, str] = {}  # of the roots
        self.text = ""
        roots = dict.fromkeys((script.parent, folder))
        waiting, seen = [script], {script}
        while waiting and len(self._files) < MAX_MODULES:
            path = waiting.pop(0)
            try:
                text = read_head(path, SIZE_LIMIT)
                tree = ast.parse(text)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            self.text += text.decode("utf-8", "replace")
            self._files[tree] = path.name
            for node in ast.walk(tree):
                self.nodes.append(node)
                self._parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
            for found in _imported(tree, [path.parent, *roots]):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node is in, from the inside out."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def where(self, node: ast.AST) -> str:
        root = next((each for each in self.above(node) if each in self._files), None)
        return f"{self._files[root] if root else ''}:{getattr(node, 'lineno', 0)}"

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef]]:
        """The functions of the program by name; a class counts by its __init__."""
        found: dict[str, list[ast.FunctionDef]] = {}
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef):
                parent = self._parents.get(node)
                is_init = node.name == "__init__" and isinstance(parent, ast.ClassDef)
                name = parent.name if is_init and isinstance(parent, ast.ClassDef) else node.name
                found.setdefault(name, []).append(node)
        return found

    def function_of(self, node: ast.AST) -> ast.FunctionDef | None:
        return next((each for each in self.above(node) if isinstance(each, ast.FunctionDef)), None)

    def calls_of(self, function: ast.FunctionDef | None) -> list[ast.Call]:
        if function is None:
            return []
        names = {name for name, found in self.functions.items() if function in found}
        return [call for call in self.calls if name_of(call.func) in names]

    def spread(self, names: Iterable[str]) -> frozenset[str]:
        """Follow names through assignments, and into the parameters of the program's functions."""
        known = set(names)
        while True:
            before = len(known)
            for node in self.nodes:
                if isinstance(node, ast.Assign) and mentions(node.value, known):
                    for target in node.targets:
                        known |= _targets(target)
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
                    if node.value is not None and mentions(node.value, known):
                        known |= _targets(node.target)
                elif isinstance(node, ast.For) and mentions(node.iter, known):
                    known |= _targets(node.target)
                elif isinstance(node, ast.Call):
                    known |= self._into(node, known)
            if len(known) == before:
                return frozenset(known)

    def _into(self, call: ast.Call, known: set[str]) -> set[str]:
        """Return the parameters that get a known name."""
        found: set[str] = set()
        for function in self.functions.get(name_of(call.func), ()):
            parameters = [each.arg for each in function.args.args]
            is_method = parameters[:1] == ["self"]
            for name, value in zip(parameters[is_method:], call.args, strict=False):
                if mentions(value, known):
                    found.add(name)
            found |= {key.arg for key in call.keywords if key.arg and mentions(key.value, known)}
        return found


def _imported(tree: ast.Module, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that are imported from one of the folders."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names += [base, *(f"{base}.{each.name}".lstrip(".") for each in node.names)]
    for name in filter(None, names):
        near = name.replace(".", "/")
        for root in roots:
            for path in (root / f"{near}.py", root / near / "__init__.py"):
                if path.is_file():
                    yield path


def _targets(node: ast.AST) -> set[str]:
    """Return the names that an assignment sets; of args.x and self.x, x."""
    if isinstance(node, ast.Tuple | ast.List):
        return {name for each in node.elts for name in _targets(each)}
    return {name} if (name := name_of(node)) else set()


def mentions(node: ast.AST, names: Iterable[str]) -> bool:
    """Return whether an expression reads one of the names: x, args.x, args["x"]."""
    wanted = names if isinstance(names, set | frozenset) else set(names)
    return any(name in wanted for name in _read(node))


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names that an expression reads; not those of what it calls."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _read(node.func.value)
        inner: list[ast.AST] = [*node.args, *node.keywords]
        if name_of(node.func) in ("get", "getattr"):
            yield from (
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
        for each in inner:
            yield from _read(each)
        return
    if isinstance(node, ast.Name | ast.Attribute):
        yield name_of(node)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        yield str(node.slice.value)
    for child in ast.iter_child_nodes(node):
        yield from _read(child)


def _called(node: ast.AST) -> Iterator[str]:
    """Yield the names of what is called or named anywhere in a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Name):
            yield name_of(each)


class Load:
    """A place where the program loads what may be a checkpoint."""

    def __init__(self, call: ast.Call, source: ast.expr | None, *, whole: bool) -> None:
        self.call, self.source = call, source  # None: it chooses by itself
        self.whole = whole  # a framework's: it restores optimizer and counter by itself
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else ast.Pass()
        others = len(call.args) + len(call.keywords) > 1
        self.in_place = others and name_of(receiver) not in ("torch", "")  # into what is passed


class _Detection:
    """Looks for a way to resume in one program."""

    def __init__(self, program: Program, command: Sequence[str]) -> None:
        self._program, self._command = program, tuple(command)
        self._why = ""  # a way was found, and does not count
        self._options = list(self._found_options())
        self._loads = list(self._find_loads())
        unset = [option.name for option in self._options if self._is_unset(option)]
        self._unset = program.spread(unset) if unset else frozenset()

    def method(self) -> ResumeMethod:
        found = self._by_option() or self._by_word() or self._by_constant() or self._by_itself()
        if found is None:
            return _unknown(self._why)
        if deleted := self._deletes():
            return _unknown(f"{deleted} deletes its output folder at every start")
        by_path = found.variable or any(CHECKPOINT in argument for argument in found.arguments)
        if not by_path and (dated := self._dated()):
            return _unknown(f"{dated}: each start writes to another folder")
        return found

    def only_call(self, name: str) -> tuple[str, str]:
        """Return where a method of a trainer is called, and on what; "" if not just once."""
        made = self._made_by(_MAKES_TRAINER)
        calls: list[tuple[ast.Call, str]] = []
        for call in self._program.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == name:
                receiver = ast.unparse(call.func.value)
                if receiver in made or "trainer" in receiver.lower():
                    calls.append((call, receiver))
        if len(calls) != 1 or not self._is_at_start(calls[0][0]) or self._deletes():
            return "", ""
        return self._program.where(calls[0][0]), calls[0][1]

    def _made_by(self, makers: re.Pattern[str]) -> set[str]:
        """Return the names that are given what a call of one of these returns."""
        return {
            ast.unparse(target)
            for node in self._program.nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if makers.search(ast.unparse(node.value.func))
        }

    def _find_loads(self) -> Iterator[Load]:
        for call in self._program.calls:
            name = name_of(call.func)
            for key in call.keywords:
                nothing = isinstance(key.value, ast.Constant) and not key.value.value
                if key.arg and KEYWORDS.get(key.arg) == name and not nothing:
                    yield Load(call, key.value, whole=True)
            library = name in LIBRARY_LOADS and name not in self._program.functions
            plain = name == "load" and isinstance(call.func, ast.Attribute)
            if plain and isinstance(call.func, ast.Attribute):
                plain = name_of(call.func.value) not in NO_LOADS
            if library or plain or (name == "load_file"):
                arguments = [*call.args, *(key.value for key in call.keywords)]
                source = ast.Tuple(elts=arguments) if arguments else None
                yield Load(call, source, whole=False)

    def _is_training_state(self, load: Load) -> bool:
        """Return whether an optimizer and a counter are taken from what is loaded."""
        if load.whole:
            return True
        results = self._results(load)
        if name_of(load.call.func) in LIBRARY_LOADS:
            return self._counts(results, load) or self._counts_itself(load)
        return self._restores_optimizer(load, results) and self._counts(results, load)

    def _lacking(self, load: Load) -> str:
        """Return what was not seen to be taken from what is loaded."""
        results = self._results(load)
        library = name_of(load.call.func) in LIBRARY_LOADS
        seen = {
            "optimizer state": (
                library or self._restores_optimizer(load, results),
                'optimizer.load_state_dict(checkpoint["optimizer"])',
            ),
            "step": (self._counts(results, load), 'start = checkpoint["step"]'),
        }
        lacking = {name: write for name, (found, write) in seen.items() if not found}
        where, add = self._program.where(load.call), " and ".join(lacking.values())
        found = f"{where} loads weights; found no {' and no '.join(lacking)}"
        return f"{found}. Save it too, and add {add}"

    def _results(self, load: Load) -> frozenset[str]:
        """Return the names that hold what was loaded."""
        program, call = self._program, load.call
        names = set(_read(call.args[0])) if load.in_place and call.args else set()
        todo: list[ast.AST] = [call]
        for _ in range(4):  # through functions that return it
            following: list[ast.AST] = []
            for node in todo:
                for each in program.above(node):
                    if isinstance(each, ast.Assign):
                        names |= {name for one in each.targets for name in _targets(one)}
                    elif isinstance(each, ast.NamedExpr | ast.AnnAssign):
                        names |= _targets(each.target)
                    elif isinstance(each, ast.Return):
                        following += program.calls_of(program.function_of(node))
                    if isinstance(each, ast.stmt):
                        break
                function = program.function_of(node)
                returns = [
                    each
                    for each in ast.walk(function or ast.Pass())
                    if isinstance(each, ast.Return) and each.value and mentions(each.value, names)
                ]
                following += program.calls_of(function) if returns else []
            todo = following
        return program.spread(names) if names else frozenset()

    def _restores_optimizer(self, load: Load, results: frozenset[str]) -> bool:
        for call in self._program.calls:
            if name_of(call.func) not in OPTIMIZER_LOADS:
                continue
            inside = any(each is load.call for each in ast.walk(call))
            if not inside and not any(mentions(each, results) for each in call.args):
                continue
            receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            keys = [
                each.value
                for argument in (*call.args, *call.keywords)
                for each in ast.walk(argument)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            named = [name_of(call.func), receiver, *keys]
            if receiver in self._made_by(_MAKES_OPTIMIZER):
                return True
            if any(_OPTIMIZER.search(text) for text in named):
                return True
            loops = (each for each in self._program.above(call) if isinstance(each, ast.For))
            if any(receiver in _targets(loop.target) for loop in loops):  # all that was saved
                return True
        return False

    def _counts(self, results: frozenset[str], load: Load) -> bool:
        """Return whether a step or an epoch is taken from what was loaded, or from its name."""
        sources = set(results) | (set(_read(load.source)) if load.source else set())
        spread = self._program.spread(sources)
        for node in self._program.nodes:
            key = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                beside = "loads" in set(_called(node.value)) and mentions(node.value, spread)
                key = node.slice if beside or mentions(node.value, results) else None
            elif isinstance(node, ast.Call) and name_of(node.func) in ("get", "pop") and node.args:
                read = isinstance(node.func, ast.Attribute) and mentions(node.func.value, results)
                key = node.args[0] if read else None
            if isinstance(key, ast.Constant) and _COUNTER.search(str(key.value)):
                return True
            if not isinstance(node, ast.Assign):
                continue
            targets = {name for target in node.targets for name in _targets(target)}
            counters = {name for name in targets if _FIRST.search(name)} | targets & self._bounds
            number = "int" in set(_called(node.value)) or isinstance(node.value, ast.Call)
            if counters and number and mentions(node.value, spread):
                return True
            if targets & results & self._bounds:
                return True
        return False

    def _counts_itself(self, load: Load) -> bool:
        """Return whether a loop begins where that says which was loaded into: engine.global_steps.

        Names are followed no further: an Accelerator has no such count, and all comes from it.
        """
        function = load.call.func
        loaded = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
        for node in self._program.nodes:
            if not isinstance(node, ast.Attribute) or ast.unparse(node.value) != loaded:
                continue
            for each in self._program.above(node) if _OWN_COUNT.fullmatch(node.attr) else ():
                if isinstance(each, ast.While) and node in ast.walk(each.test):
                    return True
                if isinstance(each, ast.Call) and name_of(each.func) in ("range", "enumerate"):
                    return True
                if isinstance(each, ast.Assign):
                    return any(_targets(target) & self._bounds for target in each.targets)
                if isinstance(each, ast.stmt):
                    break
        return False

    @cached_property
    def _bounds(self) -> set[str]:
        """The names that say where a loop begins: range(first, last), enumerate(data, first)."""
        found: set[str] = set()
        for node in self._program.nodes:
            if isinstance(node, ast.While):
                found |= set(_read(node.test))
            elif isinstance(node, ast.Call) and name_of(node.func) == "range" and node.args[1:]:
                found |= set(_read(node.args[0]))
            elif isinstance(node, ast.Call) and name_of(node.func) == "enumerate":
                found |= {name for each in node.args[1:2] for name in _read(each)}
        return found

    def _found_options(self) -> Iterator[ScriptOption]:
        program = self._program
        yield from (option_of(call) for call in program.calls if declares_option(call))
        parsed = [
            call for call in program.calls if re.search(r"(?i)cli|pars|wrap", name_of(call.func))
        ]
        known = {name for call in parsed for each in call.args for name in _called(each)}
        for node in program.nodes:
            if isinstance(node, ast.ClassDef) and node.name in known:
                yield from (
                    ScriptOption(
                        flags=(f"--{each.target.id}",),
                        name=each.target.id,
                        line=each.lineno,
                        filled=bool(getattr(each.value, "value", each.value)),
                        alone="bool" in ast.unparse(each.annotation),
                        number=ast.unparse(each.annotation) in ("int", "float"),
                    )
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
        if any("TrainingArguments" in name for name in known):  # of transformers
            name = "resume_from_checkpoint"
            yield ScriptOption(flags=(f"--{name}",), name=name, line=0)
        parsed = [call for call in program.calls if ast.unparse(call.func) in OF_PARAMETERS]
        for call in (each for each in parsed if each.args):
            for function in program.functions.get(name_of(call.args[0]), ()):
                arguments = function.args
                first = len(arguments.args) - len(arguments.defaults)
                for each, default in zip(arguments.args[first:], arguments.defaults, strict=True):
                    value = getattr(default, "value", None)
                    yield ScriptOption(
                        flags=(f"--{each.arg}",),
                        name=each.arg,
                        line=each.lineno,
                        filled=bool(value),
                        alone=value is False,
                        number=isinstance(value, int | float) and not isinstance(value, bool),
                    )
        yield from self._overrides()

    def _overrides(self) -> Iterator[ScriptOption]:
        """Yield the keys of a Hydra configuration by which the script could be told to resume."""
        if "hydra" not in self._program.text and "from_cli" not in self._program.text:
            return
        roots = {"cfg", "config", "conf", "args"}
        for node in self._program.nodes:
            if isinstance(node, ast.Attribute) and _OPTIONS.search(node.attr.lower()):
                words = ast.unparse(node).split(".")
                if words[0] in roots and all(word.isidentifier() for word in words):
                    key = ".".join(words[1:])
                    yield ScriptOption(flags=(f"{key}=",), name=node.attr, line=node.lineno)

    def _is_unset(self, option: ScriptOption) -> bool:
        flags = [flag.rstrip("=") for flag in option.flags]
        return not option.filled and _given(self._command, flags) is None

    def _by_option(self) -> ResumeMethod | None:
        """Look for an option whose value is loaded, or that lets a checkpoint be loaded."""
        for option in sorted(
            self._options, key=lambda it: ("resum" not in it.name.lower(), it.line)
        ):
            name = option.name.lower()
            if option.number or _OTHER_OPTIONS.search(name):
                continue
            telling = _OPTIONS.search(name) is not None
            names = self._program.spread({option.name})
            for load in self._loads:
                by_path = load.source is not None and mentions(load.source, names)
                compared = self._compared(load, names) if not by_path else ""
                tests = self._tests(load.call) if option.alone else ()
                guarded = any(mentions(test, names) for test in tests)
                if not (by_path and not option.alone) and not compared and not guarded:
                    continue
                if not telling and (not by_path or not self._is_training_state(load)):
                    continue
                if option.filled and not option.alone:  # it has a path of its own
                    continue
                if not self._is_training_state(load):
                    self._why = self._lacking(load)
                    continue
                if compared and option.choices is not None and compared not in option.choices:
                    continue
                if by_path and not option.alone and option.choices is not None:
                    continue
                return self._with_option(option, compared)
        return None

    def _with_option(self, option: ScriptOption, compared: str) -> ResumeMethod:
        flag = option.flags[-1]
        value = "" if option.alone else compared or CHECKPOINT
        arguments: tuple[str, ...] = (flag, value) if value else (flag,)
        if flag.endswith("="):
            arguments = (f"{flag}{value}",)
        given = _given(self._command, [each.rstrip("=") for each in option.flags])
        return ResumeMethod(
            how=ResumeSign.OPTION,
            arguments=arguments,
            where=self._declared(option),
            checkpoint=self._checkpoint_name(),
            given=given or "",
        )

    def _declared(self, option: ScriptOption) -> str:
        """Name the line that declares an option, else the first that reads it."""
        for node in self._program.nodes:
            if option.line and getattr(node, "lineno", 0) == option.line:
                declares = isinstance(node, ast.Call) and declares_option(node)
                field = isinstance(node, ast.AnnAssign) and name_of(node.target) == option.name
                field = field or (isinstance(node, ast.arg) and node.arg == option.name)
                if declares or field:
                    return self._program.where(node)
        reads = (
            node
            for node in self._program.nodes
            if isinstance(node, ast.Attribute) and node.attr == option.name
        )
        first = next(reads, None)
        return self._program.where(first) if first is not None else ""

    def _tests(self, node: ast.AST, depth: int = 0) -> Iterator[ast.expr]:
        """Yield the conditions under which a node is run, as far as the text shows."""
        for each in self._program.above(node):
            if isinstance(each, ast.If | ast.IfExp | ast.While):
                yield each.test
        if depth < 3:  # noqa: PLR2004 - calls deep
            for call in self._program.calls_of(self._program.function_of(node)):
                yield from self._tests(call, depth + 1)

    def _compared(self, load: Load, names: frozenset[str]) -> str:
        """Return the word with which an option lets a checkpoint be loaded: "resume"."""
        for test in self._tests(load.call):
            for each in ast.walk(test):
                if not isinstance(each, ast.Compare) or not isinstance(each.ops[0], ast.Eq):
                    continue
                value = getattr(each.comparators[0], "value", None)
                if value in CONTINUES and mentions(each.left, names):
                    return str(value)
        return ""

    def _by_word(self) -> ResumeMethod | None:
        """Look for a word of the command, or a variable, that lets a checkpoint be loaded."""
        typed = self._program.spread({"argv"})
        for load in filter(self._is_training_state, self._loads):
            for test in self._tests(load.call):
                for each in ast.walk(test):
                    if not isinstance(each, ast.Compare) or not isinstance(each.ops[0], ast.In):
                        continue
                    word = getattr(each.left, "value", None)
                    if (
                        isinstance(word, str)
                        and _OPTIONS.search(word.lower())
                        and mentions(each.comparators[0], typed)
                        and word not in self._command
                    ):
                        where = self._program.where(each)
                        return ResumeMethod(how=ResumeSign.OPTION, arguments=(word,), where=where)
            for name, node, names in self._variables():
                if load.source is not None and mentions(load.source, names):
                    return ResumeMethod(
                        how=ResumeSign.OPTION, variable=name, where=self._program.where(node)
                    )
        return None

    def _variables(self) -> Iterator[tuple[str, ast.AST, frozenset[str]]]:
        """Yield the variables of the environment that are read, and the names that hold them."""
        for node in self._program.nodes:
            read: ast.AST | None = None
            if isinstance(node, ast.Call) and node.args:
                reads = ("getenv", "os.environ.get", "environ.get", "os.getenv")
                read = node.args[0] if ast.unparse(node.func) in reads else None
            elif isinstance(node, ast.Subscript) and name_of(node.value) == "environ":
                read = node.slice
            name = getattr(read, "value", None)
            if not isinstance(name, str) or not _OPTIONS.search(name.lower()):
                continue
            for each in self._program.above(node):
                if isinstance(each, ast.Assign):
                    targets = {part for target in each.targets for part in _targets(target)}
                    yield name, node, self._program.spread(targets)
                if isinstance(each, ast.stmt):
                    break

    def _by_constant(self) -> ResumeMethod | None:
        """Look for a constant that --name=value overrides, as nanoGPT's configurator.py does."""
        if "configurator.py" not in self._program.text:
            return None
        for node in self._program.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for name in (name_of(target) for target in node.targets):
                    for load in self._loads:
                        word = self._compared(load, frozenset({name}))
                        if word and self._is_training_state(load):
                            return ResumeMethod(
                                how=ResumeSign.OPTION,
                                arguments=(f"--{name}={word}",),
                                where=self._program.where(node),
                            )
        return None

    def _by_itself(self) -> ResumeMethod | None:
        """Look for a checkpoint that is loaded whenever it is there."""
        variables = [names for _, _, names in self._variables()]
        typed = self._program.spread({"argv"}).union(self._unset, *variables)
        for load in self._loads:
            source = load.source
            if source is not None and mentions(source, typed):
                continue
            if any(mentions(test, typed) for test in self._tests(load.call)):
                continue
            engine = (
                name_of(load.call.func) == "load_checkpoint" and DEEPSPEED in self._program.text
            )
            if not load.whole and not engine and not self._looks_first(load):
                continue
            if self._is_training_state(load):
                where = self._program.where(load.call)
                return ResumeMethod(how=ResumeSign.ITSELF, where=where)
            read = set(_read(source)) if source else set()
            if any(read & set(_read(path)) for path in self._saved_paths()):
                self._why = self._lacking(load)
        return None

    def _looks_first(self, load: Load) -> bool:
        """Return whether the script asks if there is a checkpoint before it loads one."""
        read = set(_read(load.source)) if load.source else set()
        nodes: list[ast.AST] = [*self._tests(load.call), *self._assigned(read)]
        call: ast.AST = load.call
        for _ in range(3):
            nodes += [each for each in self._program.above(call) if isinstance(each, ast.Try)]
            function = self._program.function_of(call)
            if function is not None:
                nodes.append(function)
            calls = self._program.calls_of(function)
            if not calls:
                break
            call = calls[0]
        names = {name for node in nodes for name in _called(node)}
        inside = [each for name in names for each in self._program.functions.get(name, ())]
        names |= {name for function in inside for name in _called(function)}
        return bool(names & LOOKS)

    def _assigned(self, names: set[str]) -> Iterator[ast.expr]:
        """Yield what is assigned to one of the names."""
        for node in self._program.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if any(_targets(target) & names for target in targets):
                yield node.value  # type: ignore[attr-defined] # of an assignment

    def _saved_paths(self) -> Iterator[ast.expr]:
        for call in self._program.calls:
            name = name_of(call.func)
            if name in SAVES and len(call.args) > SAVES[name]:
                yield call.args[SAVES[name]]

    def _deletes(self) -> str:
        """Return where the script deletes the folder that it writes to, before it trains."""
        made = [call for call in self._program.calls if name_of(call.func) in FOLDERS]
        folders = [call.args[0] if call.args else call.func for call in made]
        written = {name for path in (*self._saved_paths(), *folders) for name in _read(path)}
        removed = [it for it in self._program.calls if name_of(it.func) == "rmtree" and it.args]
        for call in removed:
            if not mentions(call.args[0], written):
                continue
            if self._is_at_start(call) and not any(
                mentions(test, self._unset) for test in self._tests(call)
            ):
                return self._program.where(call)
        return ""

    def _is_at_start(self, call: ast.Call, depth: int = 0) -> bool:
        if any(isinstance(each, ast.For | ast.While) for each in self._program.above(call)):
            return False
        calls = self._program.calls_of(self._program.function_of(call))
        if not calls or depth > 3:  # noqa: PLR2004 - calls deep
            return True
        return any(self._is_at_start(each, depth + 1) for each in calls)

    def _dated(self) -> str:
        """Return where a path that the script saves to gets the time, or a random part."""
        times = set()
        for node in self._program.nodes:
            if isinstance(node, ast.Assign):
                dated = [
                    each
                    for each in ast.walk(node.value)
                    if isinstance(each, ast.Call) and name_of(each.func) in OF_TIME
                ]
                if dated:
                    times |= {name for target in node.targets for name in _targets(target)}
        names = self._program.spread(times) if times else frozenset()
        for path in self._saved_paths():
            direct = {name_of(each.func) for each in ast.walk(path) if isinstance(each, ast.Call)}
            if mentions(path, names) or direct & OF_TIME:
                return self._program.where(path)
        return ""

    def _checkpoint_name(self) -> str:
        """Return the file that the script seems to save to, if there is only one such name."""
        files = set()
        for node in self._program.nodes:
            text = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(text, str) or not _CHECKPOINT_FILE.fullmatch(text):
                continue
            parent = next(self._program.above(node), None)
            joined = isinstance(parent, ast.BinOp) or (
                isinstance(parent, ast.Call) and name_of(parent.func) in ("join", "joinpath")
            )
            if _CHECKPOINT_NAME.search(text) and "best" not in text:
                files.add("" if joined else text)
        return files.pop() if len(files) == 1 else ""
