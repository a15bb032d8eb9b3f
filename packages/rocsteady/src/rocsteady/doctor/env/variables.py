"""What each variable does on a machine, one by one and together.

A rule belongs to a variable if it holds with that variable alone and not without any, or holds with
all of them and not without that one. So no rule has to name the variables that it is about.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.diagnosis import brief, doctors_knowledge, rule_findings
from rocsteady.doctor.env.variable_files import Assignment, assignments
from rocsteady.doctor.facts import gather
from rocsteady.doctor.knowledge.hardware import Variable
from rocsteady.doctor.knowledge.library_contents import gone_from, is_in_a_library, nearest
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import leaves
from rocsteady.doctor.knowledge.values import Effect, Severity
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.rocm import PLACES, Cache, Shadow
from rocsteady.doctor.machine.system import FAMILIES, SetVariable, listed
from rocsteady.doctor.training_gpus import VARIABLE as OVERRIDE
from rocsteady.doctor.training_gpus import visible
from rocsteady.doctor.values import Finding, VariableReason, VariableReview, VariableVerdict
from rocsteady.errors import ExaminationError
from rocsteady.system.root import Root
from rocsteady.versions import version_fits


# Whether what reads a variable takes the value it has. Each form is that of the code that reads
# it: sources ``rocr-flags``, ``clr-flag-values``, ``miopen-env``, ``rccl-param`` and ``pytorch-
# env`` of the knowledge base.
class Form(NamedTuple):
    pattern: str
    expected: str
    otherwise: str  # what happens with another value


FORMS: Mapping[str, Form] = {
    "switch": Form("[01]", "0 or 1", "any other value is ignored"),
    "number": Form(r"\s*[+-]?(0[xX][0-9a-fA-F]+|\d+)", "a whole number", "other text is read as 0"),
    "hip-switch": Form(
        r"true|false|\s*[+-]?\d+", "0 or 1, false or true", "other text is read as 0"
    ),
    "word-switch": Form(
        r"(?i:0|1|no|yes|off|on|false|true|disabled?|enabled?)",
        "0 or 1, off or on",
        "any other value is an error or is ignored",
    ),
    "gfx-version": Form(
        r"\d+\.\d+\.\d+", "three numbers such as 10.3.0", "with anything else no GPU is found"
    ),
    "devices": Form(
        r"\s*(-?\d+|GPU-[0-9a-fA-F]+)?(\s*,\s*(-?\d+|GPU-[0-9a-fA-F]+))*\s*",
        "GPU numbers or UUIDs, separated by commas",
        "the list ends before the first other entry",
    ),
}


def wrong_value(value: str | None, known: Variable) -> str:
    """Return what is wrong with a value; "" if nothing is, or if the values are not known."""
    if value is None or not known.takes:
        return ""
    forms = [FORMS[each] for each in known.takes if each in FORMS]
    words = [each for each in known.takes if each not in FORMS]
    if any(re.fullmatch(form.pattern, value) for form in forms) or value.upper() in words:
        return ""
    expected = " or ".join(filter(None, [", ".join(words), *(form.expected for form in forms)]))
    otherwise = forms[0].otherwise if forms else "any other value is ignored"
    return f"Valid values: {expected}; {otherwise}."


UNKNOWN_VARIABLE = "unknown-variable"  # the rule whose question is answered here name by name
ROCM = "/opt/rocm/"  # a link to one that is installed
MAX_BLOCKS = 20  # commands or services of one file that are judged apart
MANY_VARIABLES = 500  # variables in one file; for more, no nearest names are looked for
SIMILAR = 0.75  # how near a name must be to be worth suggesting to somebody who asked
UNEXAMINED_PREFIXES = (
    "PYTORCH_",
    "TORCH_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "AOTRITON_",
    "ROCM_",
)
GOOD = (Effect.ACTS, Effect.HELPS, Effect.DEPENDS, Effect.CANCELS)  # of two, the other is wrong
HIDES_ALL = "Hides every GPU of this machine, so that PyTorch finds none."
NO_SUCH_NODE = (
    "No GPU of this machine has that node number. Nodes are those of /sys/class/kfd, where the"
    " processor comes first."
)
NOT_EXPORTED = (
    "The script does not export it, so the programs it starts do not see it. Write `export`."
)


def judge(
    assigned: Iterable[Assignment], machine: Machine, knowledge: Knowledge, *, file: str
) -> VariableReview:
    """Judge each assignment for a machine, with the others that the same program sees."""
    chosen = [
        each
        for each in assigned
        if listed(each.name, knowledge.variables) or each.name.startswith(FAMILIES)
    ]
    verdicts = [
        verdict
        for number, group in _together(chosen)
        for verdict in [*_verdicts(group, machine, knowledge)][-number:]
    ]
    return VariableReview(
        file=file,
        machine=brief(machine, gather(machine, knowledge), knowledge),
        variables=tuple(verdicts),
        wrong=sum(verdict.effect not in GOOD for verdict in verdicts),
    )


def _together(chosen: list[Assignment]) -> Iterator[tuple[int, list[Assignment]]]:
    """Yield the assignments that one program sees; the last ones, so many, are to be judged."""
    blocks = dict.fromkeys(each.block for each in chosen if each.block)
    if not 1 < len(blocks) <= MAX_BLOCKS:
        yield len(chosen), chosen
        return
    shared = [each for each in chosen if not each.block]
    if shared:
        yield len(shared), shared
    for block in blocks:
        own = [each for each in chosen if each.block == block]
        names = {each.name for each in own}
        yield len(own), [*(each for each in shared if each.name not in names), *own]


def _verdicts(
    chosen: list[Assignment], machine: Machine, knowledge: Knowledge
) -> Iterator[VariableVerdict]:
    lost = VariableReason(effect=Effect.NONE, text=NOT_EXPORTED)
    acting = tuple(SetVariable(name=it.name, value=it.value) for it in chosen if it.exported)
    rules = _Rules(machine, knowledge, acting)
    for each in chosen:
        reasons = _reasons(each, rules) if each.exported else (lost,)
        ordered = tuple(sorted(reasons, key=lambda reason: list(Effect).index(reason.effect)))
        yield VariableVerdict(
            name=each.name,
            value=each.value if listed(each.name, knowledge.variables) else None,
            place=each.place,
            effect=ordered[0].effect,
            reasons=ordered,
        )


class _Rules:
    def __init__(
        self, machine: Machine, knowledge: Knowledge, variables: tuple[SetVariable, ...]
    ) -> None:
        self.machine, self.knowledge, self.variables = machine, knowledge, variables
        self.names = frozenset(variable.name for variable in variables)
        rules = {key: rule for key, rule in knowledge.rules.items() if key != UNKNOWN_VARIABLE}
        self._known = msgspec.structs.replace(knowledge, rules=rules)
        self._none = self._holding(())
        self._all = self._holding(variables)

    def about_gpus(self, name: str) -> tuple[str, ...]:
        """Return the rules about a variable that no GPU here answers."""
        if self.machine.gpus.gpus:
            return ()
        return tuple(
            rule.title
            for rule in self._known.rules.values()
            if (asked := {leaf.fact or "" for leaf in leaves(rule.when)}) & {f"variable:{name}"}
            and any(fact.startswith("gpu.") for fact in asked)
        )

    def hides_all(self, name: str) -> bool:
        alone = tuple(it for it in self.variables if it.name == name)
        return bool(self.machine.gpus.gpus) and not visible(_with(self.machine, alone))

    def harm_of(self, name: str, value: str | None) -> str:
        """Return what would be wrong if this were set too."""
        added = SetVariable(name=name, value=value)
        found = _Rules(self.machine, self.knowledge, (*self.variables, added)).caused(name)[0]
        return next((it.summary for it in found if it.severity is not Severity.NOTES), "")

    def caused(self, name: str) -> tuple[list[Finding], list[Finding]]:
        """Return what holds because of a variable, and what does not hold because of it."""
        alone = self._holding([it for it in self.variables if it.name == name])
        without = self._holding([it for it in self.variables if it.name != name])
        harmful = [
            alone.get(rule, finding)
            for rule, finding in self._all.items()
            if (rule in alone and rule not in self._none) or rule not in without
        ]
        resolved = [
            finding
            for rule, finding in self._none.items()
            if rule not in self._all and (rule not in alone or rule in without)
        ]
        return harmful, resolved

    def reason(self, known: Variable, effect: Effect, text: str) -> VariableReason:
        sources = tuple(self.knowledge.sources[key] for key in known.sources)
        return VariableReason(effect=effect, text=text, sources=sources)

    def _holding(self, variables: Iterable[SetVariable]) -> dict[str, Finding]:
        machine = _with(self.machine, tuple(variables))
        found = rule_findings(machine, gather(machine, self._known), self._known, CHECKS)
        return {finding.rule: finding for finding in found.findings}


def _with(machine: Machine, variables: tuple[SetVariable, ...]) -> Machine:
    """Return the machine as it would be with just these variables set."""
    values = {variable.name: variable.value for variable in variables}
    caches = [cache for cache in machine.caches if not cache.variable]
    for name, variable, _ in PLACES:
        if values.get(variable):
            caches = [cache for cache in caches if cache.name != name]
            path = values[variable] or ""
            caches.append(Cache(name=name, path=path, variable=variable, disk=None))
    return msgspec.structs.replace(
        machine,
        variables=variables,
        variables_known=True,
        caches=tuple(caches),
        library_shadows=tuple(_shadows(machine, values.get("LD_LIBRARY_PATH") or "")),
    )


def _shadows(machine: Machine, folders: str) -> Iterator[Shadow]:
    """Yield the folders of an LD_LIBRARY_PATH that hold ROCm libraries, as far as is known."""
    recorded = {shadow.folder: shadow for shadow in machine.library_shadows}
    for folder in folders.split(":"):
        under = [it for it in machine.rocm if f"{folder}/".startswith((f"{it.path}/", ROCM))]
        if folder in recorded:
            yield recorded[folder]
        elif under:
            yield Shadow(folder=folder, libraries=(f"ROCm {under[0].version}",))


def _reasons(each: Assignment, rules: _Rules) -> tuple[VariableReason, ...]:
    known = _known(each.name, rules.knowledge)
    if known is None or not known.read_by:
        return (_unknown(each, known, rules),)
    if _of_no_gpu(each.name, rules.machine):
        return (rules.reason(known, Effect.NONE, NO_SUCH_NODE),)
    if rules.hides_all(each.name):
        return (rules.reason(known, Effect.HARMS, f"{HIDES_ALL} {known.meaning}"),)
    harmful, resolved = rules.caused(each.name)
    reasons = [*_by_rules(each, harmful, resolved, rules), *_by_list(each, known, rules)]
    if any(reason.effect is Effect.CANCELLED for reason in reasons):
        reasons = [reason for reason in reasons if reason.effect is not Effect.CANCELS]
    wrong = wrong_value(each.value, known)
    if wrong:
        reasons.append(rules.reason(known, Effect.INVALID, f"{wrong} {known.meaning}"))
    elif not harmful:
        reasons.append(rules.reason(known, *_by_kind(each, known, rules)))
    return tuple(reasons)


def _of_no_gpu(name: str, machine: Machine) -> bool:
    """Whether an override is for a node that is no GPU; node 0 is mostly the processor."""
    node = name.removeprefix(f"{OVERRIDE}_")
    return (
        node.isdecimal()
        and bool(machine.gpus.gpus)
        and all(gpu.node != int(node) for gpu in machine.gpus.gpus)
    )


def _known(name: str, knowledge: Knowledge) -> Variable | None:
    base = name.rstrip("0123456789").removesuffix("_")
    return knowledge.variables.get(name) or knowledge.variables.get(base)


def _unknown(each: Assignment, known: Variable | None, rules: _Rules) -> VariableReason:
    if known is not None:
        return rules.reason(known, Effect.UNKNOWN, known.meaning)
    name = each.name
    gone = gone_from(name)
    if gone:
        return VariableReason(effect=Effect.UNKNOWN, text=f"Not in {gone.text}.")
    if is_in_a_library(name):
        text = "A ROCm library contains this name; rocsteady does not know what it does."
        return VariableReason(effect=Effect.ACTS, text=text)
    near = nearest(name, rules.knowledge, SIMILAR) if len(rules.names) <= MANY_VARIABLES else ""
    meant = f" The nearest real name is {near}." if near else ""
    harm = rules.harm_of(near, each.value) if near else ""
    meant += f" Leave it out: under that name it would do harm here. {harm}" if harm else ""
    if name.startswith(UNEXAMINED_PREFIXES):
        text = "Unknown variable; not every component that could read it was examined."
    else:
        text = "No ROCm library that was checked contains this name."
    return VariableReason(effect=Effect.UNKNOWN, text=text + meant)


def _by_rules(
    each: Assignment, harmful: list[Finding], resolved: list[Finding], rules: _Rules
) -> Iterator[VariableReason]:
    for finding in harmful:
        harms = finding.severity is not Severity.NOTES
        effect = rules.knowledge.rules[finding.rule].effect
        if effect is Effect.PARTLY and "," not in (each.value or ""):
            effect = Effect.NONE  # that part is the whole value
        yield VariableReason(
            effect=effect or (Effect.HARMS if harms else Effect.ACTS),
            text=finding.summary,
            rule=finding.rule,
            sources=finding.sources,
        )
    for finding in resolved:
        title = rules.knowledge.rules[finding.rule].title
        yield VariableReason(
            effect=Effect.HELPS,
            text=f"Without it the doctor would report: {title}.",
            rule=finding.rule,
            sources=finding.sources,
        )


def _cancels(value: str | None, known: Variable) -> bool:
    return not known.cancels_at or value in known.cancels_at


def _by_list(each: Assignment, known: Variable, rules: _Rules) -> Iterator[VariableReason]:
    cancelled = [name for name in known.cancels if name in rules.names]
    if cancelled and _cancels(each.value, known):
        text = f"With it, {' and '.join(cancelled)} has no effect."
        yield rules.reason(known, Effect.CANCELS, text)
    for other in rules.variables:
        listed_as = rules.knowledge.variables.get(other.name)
        if listed_as and each.name in listed_as.cancels and _cancels(other.value, listed_as):
            spelled = f"{other.name}={other.value}" if listed_as.cancels_at else other.name
            text = f"No effect while {spelled} is set."
            yield rules.reason(listed_as, Effect.CANCELLED, text)


def _by_kind(  # noqa: PLR0911 - one return an effect
    each: Assignment, known: Variable, rules: _Rules
) -> tuple[Effect, str]:
    """Return what the list of variables says, where no rule says more."""
    gone = gone_from(each.name)
    rocm = rules.machine.torch.rocm if rules.machine.torch else None
    if gone and rocm and version_fits(rocm, f">={gone.since}"):
        return Effect.NONE, f"Not in {gone.text}. {known.meaning}"
    if rocm and "rocm" in known.valid and not version_fits(rocm, known.valid["rocm"]):
        return Effect.NONE, f"ROCm {rocm} does not read it. {known.meaning}"
    if known.building:
        return Effect.NONE, f"Read only when code is compiled. {known.meaning}"
    if known.default and each.value == known.default:
        return Effect.NONE, f"{each.value} is the default. {known.meaning}"
    if known.debugging:
        return Effect.DEBUGGING, known.meaning
    if asked := rules.about_gpus(each.name):
        text = f"{known.meaning} Not judged without a GPU: {'; '.join(asked)}."
        return Effect.DEPENDS, text
    return Effect.ACTS, known.meaning


LARGEST_FILE = 1024 * 1024  # bytes


def review_variables(root: Root, file: Path | None) -> VariableReview:
    knowledge = doctors_knowledge()
    machine, _ = examine(root, knowledge.variables)
    if file is not None:
        return judge(_set_by(file), machine, knowledge, file=file.name)
    if not machine.variables_known:
        raise ExaminationError(
            "a copied folder does not record which variables were set; name a file that sets them"
        )
    set_here = (Assignment(variable.name, variable.value, "") for variable in machine.variables)
    return judge(set_here, machine, knowledge, file="")


def _set_by(file: Path) -> tuple[Assignment, ...]:
    try:
        content = read_regular(file, LARGEST_FILE)
    except OSError as error:
        raise ExaminationError(f"{file}: {error.strerror}") from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in content and not wide:
        raise ExaminationError(f"{file}: not a text file")
    text = content.decode("utf-16" if wide else "utf-8-sig", "replace")
    return assignments(text, file.name)
