"""What is wrong with the entries, and where: ``python tools/knowledge_check.py [FOLDER]``.

For those who write entries: beside what every start refuses, the rules of the house (length, a full
stop, an example that holds). Each problem is printed with the file and the line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.condition_match import Matcher
from rocsteady.doctor.facts import FACTS, facts_of
from rocsteady.doctor.knowledge.failures import known_messages, load_failures
from rocsteady.doctor.knowledge.gpu_rental import load_offers, load_speeds
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.knowledge.reader import DATA, DataFolder, Knowledge, load_knowledge
from rocsteady.doctor.knowledge.rules import Rule
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.errors import KnowledgeError
from rocsteady.failures.remedy import ANY, load_remedies
from rocsteady.model import Value

TITLE, SUMMARY = 60, 200  # letters
STEPS = 3  # what to do about a failure, at least
NAMES = "id|name|gfx|torch"  # the field that an entry is called by


class EntryProblem(Value, frozen=True, kw_only=True):
    file: str  # below the data folder
    line: int  # 0 if the entry was not found
    entry: str
    problem: str  # the field, and what is wrong with it

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.entry}: {self.problem}"


def knowledge_problems(folder: Path = DATA) -> tuple[EntryProblem, ...]:
    """Return what is wrong with any entry below a folder."""
    knowledge = load_knowledge(folder, facts=FACTS, checks=CHECKS)
    data = DataFolder(folder)
    failures = load_failures(data)
    known_messages(data)
    load_offers(data)
    load_speeds(data)
    load_other_options(data)
    harmful_variables(data)
    remedies = load_remedies(data)
    found = [*dict.fromkeys((*knowledge.ignored, *data.ignored))]
    for rule in knowledge.rules.values():
        found += (f"rules: {rule.id}: {problem}" for problem in _rule_problems(rule, knowledge))
        found += (
            f"rules: {rule.id}: leads_to: {kind!r} is not in failures.toml"
            for kind in rule.leads_to
            if kind not in failures.kinds
        )
    found += (
        f"remedies.toml: {remedy.id}: answers: {kind!r} is not in failures.toml"
        for remedy in remedies.values()
        for kind in remedy.answers
        if kind not in failures.kinds and kind != ANY
    )
    for kind in failures.kinds.values():
        fix = kind.fix or kind.advice
        if fix is None or 1 + len(fix.then) < STEPS:
            found.append(f"failures.toml: {kind.id}: then: what to do first, second and third")
    lines = _EntryLines(folder)
    return tuple(lines.located(each) for each in found)


def _rule_problems(rule: Rule, knowledge: Knowledge) -> Iterator[str]:
    for field, text, limit in (("title", rule.title, TITLE), ("summary", rule.summary, SUMMARY)):
        if len(text) > limit:
            yield f"{field}: {len(text)} letters, at most {limit}"
    if not rule.summary.endswith("."):
        yield "summary: ends with a full stop"
    for field, text in (("why", rule.why), ("summary", rule.summary), ("title", rule.title)):
        if not text.isascii():
            yield f"{field}: only plain letters (ASCII)"
    yield from _fix_problems(rule)
    if rule.example:
        match = Matcher(facts_of(rule.example), {}, knowledge.arches).match(rule.when)
        if not match.holds:
            lacks = f"; not in it: {', '.join(match.missing)}" if match.missing else ""
            yield f"example: the rule does not hold on it{lacks}"


def _fix_problems(rule: Rule) -> Iterator[str]:
    if not rule.fix.verify:
        yield "fix.verify: how to see that it worked"
    if rule.severity is Severity.BLOCKS and not rule.fix.commands:
        yield "fix.commands: what blocks training needs one"
    changes = [f"export {name}={value}" for name, value in rule.fix.set.items()]
    changes += [f"unset {' '.join(rule.fix.unset)}"] if rule.fix.unset else []
    for command in changes:
        if command not in rule.fix.commands:
            yield f"fix.commands: no {command!r}, which set or unset stands for"
    if rule.severity is not Severity.NOTES and not rule.fix.unset:
        only = rule.fix.commands[:1]
        if len(rule.fix.commands) == 1 and only[0].startswith("unset "):
            yield "fix.unset: the variables that the command unsets"


class _EntryLines:
    """Where entries and their fields stand."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.rglob("*.toml"))
        self.texts = {
            path.relative_to(folder).as_posix(): path.read_text("utf-8").splitlines()
            for path in paths
        }

    def located(self, problem: str) -> EntryProblem:
        file, entry, rest = [*problem.split(": ", 2), "", ""][:3]
        path = rest.partition(":")[0].split(".")  # of the field, such as when.all[1].version
        named = re.compile(
            rf'(?:(?:{NAMES}) = "{re.escape(entry)}"|\[sources\.{re.escape(entry)}\])'
        )
        wanted = [re.compile(rf"\[?(?:\w+\.)?{re.escape(it)}\b") for it in (path[-1], path[0])]
        for name, lines in self.texts.items():
            if file not in (name, name.rpartition("/")[2], name.partition("/")[0]):
                continue
            start = next((at for at, line in enumerate(lines) if named.match(line)), None)
            if start is None:
                continue
            end = next(
                (at for at in range(start + 1, len(lines)) if lines[at].startswith("[[")),
                len(lines),
            )
            found = (at for it in wanted for at in range(start, end) if it.match(lines[at]))
            at = next(found, start)
            return EntryProblem(file=name, line=at + 1, entry=entry, problem=rest)
        return EntryProblem(file=file, line=0, entry=entry, problem=rest)


def main() -> None:
    """Print the problems; 1: there is one."""
    try:
        found = knowledge_problems(*(Path(each).resolve() for each in sys.argv[1:]))
    except KnowledgeError as error:
        sys.exit(str(error))
    sys.stdout.writelines(f"{problem}\n" for problem in found or ["No problems found."])
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
