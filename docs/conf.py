"""How the documentation is built. Some reference pages are made from the program here.

They are written beside the other pages, are not kept in git, and come from what the program itself
reads, so that a page cannot say anything else than the doctor does.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocsteady import __version__
from rocsteady.doctor.facts import FACTS
from rocsteady.doctor.knowledge.gpu_rental import CardSpeed, Offer, load_offers, load_speeds
from rocsteady.doctor.knowledge.hardware import Variable
from rocsteady.doctor.knowledge.harmful_variables import Harmful, harmful_variables
from rocsteady.doctor.knowledge.library_contents import load_seen
from rocsteady.doctor.knowledge.options import SPOKEN, OtherOption, load_other_options
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.knowledge.rules import Rule
from rocsteady.doctor.knowledge.trainers import Prevents, Trainer, load_trainers
from rocsteady.doctor.knowledge.values import Severity, Source
from rocsteady.failures.remedy import ANY, Remedy, load_remedies

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "rocsteady"
author = "The rocsteady authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "rocsteady"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from failure_pages import write_failure_pages  # noqa: E402 - beside this file
from gpu_pages import plain, source_line, write, write_gpu_pages  # noqa: E402 - beside this file

SOURCE = HERE.parent / "packages" / "rocsteady_train" / "src" / "rocsteady_train"
SEVERITIES = {
    Severity.BLOCKS: "Do not expect training to work until this is fixed.",
    Severity.RISKS: "Training may work, but this is known to slow, hang or corrupt it.",
    Severity.NOTES: "Worth knowing; does no harm.",
}


def rules_page(rules: Iterable[Rule], sources: Mapping[str, Source]) -> Iterator[str]:
    """Tell every rule, worst first, with its sources."""
    ordered = sorted(rules, key=lambda rule: rule.id)
    yield "# Rules"
    yield "The problems that `rocsteady doctor` checks for. Generated from the knowledge base."
    for severity, meaning in SEVERITIES.items():
        chosen = [rule for rule in ordered if rule.severity is severity]
        if chosen:
            yield f"## {severity.value.capitalize()}"
            yield meaning
        for rule in chosen:
            yield from rule_section(rule, sources)


def rule_section(rule: Rule, sources: Mapping[str, Source]) -> Iterator[str]:
    """Tell one rule: what, why, what to do, says who."""
    yield f"### {rule.id}"
    yield f"**{plain(rule.title)}**"
    yield plain(rule.why)
    yield f"What to do: {plain(rule.fix.text)}"
    if rule.fix.commands:
        yield "\n".join(["```text", *rule.fix.commands, "```"])
    if rule.fix.needs:
        yield f"Needs: {', '.join(need.value for need in rule.fix.needs)}."
    if rule.fix.verify:
        yield f"To check that it worked: {plain(rule.fix.verify)}"
    yield f"Confidence: {rule.confidence.value}. {confirmed(rule)}"
    yield "\n".join(f"- {source_line(sources[key])}" for key in rule.sources)


def confirmed(rule: Rule) -> str:
    """Say whether we saw it ourselves."""
    if not rule.confirmed_on:
        return "We have not confirmed this on hardware."
    return f"Confirmed on {plain(', '.join(rule.confirmed_on))}."


LOOKED_AT = ("HIP", "ROCr", "MIOpen", "RCCL", "rocBLAS", "hipBLASLt", "hipcc")


def found_in(variable: Variable) -> str:
    """Name the libraries in which a variable was found, for somebody who doubts our list."""
    places = load_seen().names.get(variable.name)
    if places:
        return "; ".join(f"{library} {' and '.join(its)}" for library, its in places.items())
    if any(reader in variable.read_by for reader in LOOKED_AT):
        return "not found in any library looked at"
    return "in a part that could not be looked at"


def variables_page(variables: Iterable[Variable]) -> Iterator[str]:
    """List every variable that the doctor knows, and who reads it."""
    rows = [
        f"| `{each.name}` | {plain(each.read_by) or 'nothing'} | {plain(each.meaning)} |"
        f" {plain(found_in(each))}"
        f"{f'; sources of {each.found_in}' if each.found_in else ''} |"
        for each in sorted(variables, key=lambda each: each.name)
    ]
    yield "# Variables"
    yield (
        "The environment variables that the doctor knows. For any other variable, rocsteady keeps"
        " only the name, and only if it looks like one of ROCm's or PyTorch's, because the value"
        " may be a secret. The last column lists the library releases and the sources in which we"
        " found the name; we could not check PyTorch's libraries and those that Debian does not"
        " package. Generated from the knowledge base."
    )
    yield "\n".join(["| variable | read by | meaning | found in |", "|---|---|---|---|", *rows])


def facts_page(facts: Mapping[str, str]) -> Iterator[str]:
    """List every fact that a rule may ask for."""
    rows = [f"| `{name}` | {plain(meaning)} |" for name, meaning in facts.items()]
    rows.append("| `variable:NAME` | the value of a [variable](variables.md) that is set |")
    yield "# Facts"
    yield (
        "The facts that the condition of a [rule](../howto/add-a-rule.md) can use. A fact has one"
        " value, several, or none, or could not be read. Generated from the program."
    )
    yield "\n".join(["| fact | meaning |", "|---|---|", *rows])


def remedies_page(remedies: Iterable[Remedy], harmful: Iterable[Harmful]) -> Iterator[str]:
    """Tell every remedy, cheapest first, and the variables that one of them unsets."""
    yield "# Remedies"
    yield (
        "The changes that `rocsteady run` can make on its own after a failure: one setting at a"
        " time, the cheapest first. A change that does not help is reverted."
        " `rocsteady explain FAILURE` names those for one failure. We have not confirmed any remedy"
        " on hardware. Generated from the program."
    )
    for remedy in remedies:
        yield from remedy_section(remedy)
    yield "## Variables that are known to harm"
    yield "`unset-variable` unsets these variables, one at a time, in this order."
    rows = [
        f"| `{each.name}` | {plain(each.why)} | {', '.join(each.failures)}"
        f" | {plain(', '.join(each.sources))} |"
        for each in harmful
    ]
    yield "\n".join(["| variable | why | in | sources |", "|---|---|---|---|", *rows])


def remedy_section(remedy: Remedy) -> Iterator[str]:
    """Tell one remedy: what, for what, at what cost, when not, says who."""
    kinds = (
        "any failure that may be transient" if ANY in remedy.answers else ", ".join(remedy.answers)
    )
    confirmed_on = plain(", ".join(remedy.confirmed_on)) or "unconfirmed on hardware"
    yield f"## {remedy.id}"
    yield f"**{plain(remedy.title)}**"
    yield f"For: {kinds}."
    yield f"Costs: {plain(remedy.cost)}."
    yield f"When not to use it: {plain(remedy.when_not)}"
    yield f"Based on: {plain(remedy.evidence)}. Confirmed: {confirmed_on}."
    yield "\n".join(f"- {plain(source)}" for source in remedy.sources)


def trainers_page(trainers: Iterable[Trainer]) -> Iterator[str]:
    """Tell what is known of each trainer."""
    yield "# Trainers"
    yield (
        "What `rocsteady run` and `rocsteady init` know without a job file."
        " [Add one](../howto/add-a-trainer.md). Generated from the program."
    )
    for each in trainers:
        how = "`" + " ".join(each.arguments) + "`" if each.arguments else plain(each.cannot)
        how = f"a script does; else: {plain(each.hint)}" if each.hint else how
        rows = {
            "recognized by": ", ".join(f"`{word}`" for word in (*each.starts, *each.imports)),
            "resumes with": "nothing; it resumes by itself" if each.itself else how,
            "checkpoints": ", ".join(f"`{pattern}`" for pattern in each.checkpoints),
            "complete with": ", ".join(f"`{name}`" for name in each.complete),
            "does not resume if": "; ".join(_prevented(it) for it in each.prevents),
            "prints": plain(each.prints),
            "sets by itself": plain("; ".join(each.sets)),
            "signals": plain(each.signals),
            "without data workers": f"`{each.workers}`" if each.workers else "",
            "seen": f"{each.seen}, {each.date}, {'run' if each.tried else 'its source read'}",
            "sources": plain("; ".join(each.sources)),
        }
        yield f"## {each.name}"
        filled = [f"| {key} | {value} |" for key, value in rows.items() if value]
        yield "\n".join(["| | |", "|---|---|", *filled])


def _prevented(prevents: Prevents) -> str:
    state = f"is {' or '.join(prevents.values)}" if prevents.values else "is not there"
    return f"`{prevents.key}` {state} ({plain(prevents.why)}): `{prevents.change}`"


def options_page(
    options: Iterable[OtherOption],
    offers: Iterable[Offer],
    cards: Mapping[str, CardSpeed],
    sources: Mapping[str, Source],
) -> Iterator[str]:
    """Describe untried options, GPUs for rent, and the nominal speed of cards."""
    yield "# Options that cannot be tried here"
    yield (
        "Options of `rocsteady plan` that need another system, other software, another script or"
        " another machine. A plan marks them as estimates. We have not tried any of them on AMD"
        " hardware. Generated from the knowledge base."
    )
    for option in options:
        yield from option_section(option, sources)
    yield "## Rented GPUs"
    yield (
        "Prices for one GPU for one hour. They change within weeks: the plan warns about prices"
        " that are more than 14 days old. Disks and traffic cost extra."
    )
    rows = [
        f"| {plain(each.provider)} | {plain(each.card)} | ${each.dollars:.2f} | {each.as_of} |"
        f" {plain(f'{each.infra} {each.sky}'.strip()) or '-'} | {plain(each.note)} |"
        f" <{sources[each.source].url}> |"
        for each in offers
    ]
    header = ["| provider | card | an hour | seen | in SkyPilot | | source |", "|" + "---|" * 7]
    yield "\n".join([*header, *rows])
    yield "## Peak figures"
    yield (
        "The vendors' figures, without sparsity. rocsteady uses them to scale a speed from one card"
        " to another. No training reaches them. Figures without a source are left out."
    )
    rows = [
        f"| {plain(card.name)} | {card.memory:g} GB | {figure(card.fp32)} | {figure(card.half)} |"
        f" {figure(card.bandwidth)} | {', '.join(f'`{key}`' for key in card.sources)} |"
        for card in cards.values()
    ]
    header = ["| card | memory | fp32 TFLOPS | fp16 TFLOPS | GB/s | sources |", "|" + "---|" * 6]
    yield "\n".join([*header, *rows])
    yield "Sources:"
    keys = dict.fromkeys(key for card in cards.values() for key in card.sources)
    yield "\n".join(f"- `{key}`: {source_line(sources[key])}" for key in keys)


def figure(value: float | None) -> str:
    """Write a figure, or that there is none."""
    return "-" if value is None else f"{value:g}"


def option_section(option: OtherOption, sources: Mapping[str, Source]) -> Iterator[str]:
    """Describe one option: the verdict, what it needs, where it applies, and the sources."""
    yield f"## {option.id}"
    advice = " Advised against." if option.against else ""
    title, verdict, note = plain(option.title), plain(option.verdict), plain(option.note)
    yield f"**{title}.**{advice} {verdict} {note}".rstrip()
    setup = "not known"
    if option.setup is not None:
        low, high = option.setup
        minutes = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        setup = f"{minutes} minutes, according to {plain(sources[option.setup_by].name)}"
    yield f"Set-up: {setup}. Risk: {option.risk.value}. Confidence: {option.confidence.value}."
    if option.changes:
        yield f"Changes needed first: {plain(option.changes)}."
    if option.failures or option.findings:
        yield f"May help with: {', '.join((*option.failures, *option.findings))}."
    if option.gpus > 1:
        yield f"Needs {option.gpus} GPUs."
    for place in option.where:
        systems = " and ".join(SPOKEN[system] for system in place.os)
        yield f"On {systems}: {', '.join(place.gfx) or 'any GPU'}."
    if option.never:
        yield f"Not for {', '.join(option.never)}."
    yield "\n".join(f"- {source_line(sources[key])}" for key in option.sources)


def api_page(classes: Mapping[str, str]) -> Iterator[str]:
    """Describe classes of rocsteady_train by their docstrings, without importing torch."""
    yield "# API: Loop and Checkpointer"
    yield "From the docstrings of `rocsteady_train`; [its guide](training.md) shows their use."
    for name, module in classes.items():
        source = (SOURCE / f"{module}.py").read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(source))
        found = next(it for it in nodes if isinstance(it, ast.ClassDef) and it.name == name)
        yield f"## {name}"
        yield ast.get_docstring(found) or ""
        for method in found.body:
            public = isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
            if isinstance(method, ast.FunctionDef) and (public or method.name == "__init__"):
                yield from method_section(name, method)


def method_section(owner: str, method: ast.FunctionDef) -> Iterator[str]:
    """Describe one method: how it is called, and what it does."""
    called = owner if method.name == "__init__" else f"{owner}.{method.name}"
    arguments = ast.unparse(method.args).removeprefix("self, ").removeprefix("self")
    returns = ast.unparse(method.returns) if method.returns else "None"
    yield f"### {called}"
    yield f"```python\n{called}({arguments}) -> {returns}\n```"
    yield ast.get_docstring(method) or ""


def write_page(name: str, paragraphs: Iterable[str]) -> None:
    write(HERE / "reference", [(name, "\n\n".join(paragraphs))])


knowledge = load_knowledge()
write_page("rules.md", rules_page(knowledge.rules.values(), knowledge.sources))
write_page("variables.md", variables_page(knowledge.variables.values()))
write_page("facts.md", facts_page(FACTS))
write_page(
    "remedies.md",
    remedies_page(load_remedies().values(), harmful_variables()),
)
write_page("trainers.md", trainers_page(load_trainers()))
write_page(
    "options.md",
    options_page(load_other_options(), load_offers(), load_speeds(), knowledge.sources),
)
write_page("api.md", api_page({"Loop": "loop/loop", "Checkpointer": "checkpoints/checkpointer"}))
write_gpu_pages()
write_failure_pages()

# Pages are made from this data. In a checkout, where there is no such page, links lead to the data.
PAGE_OF = {
    "gpus.toml": "gpus/index.md",
    "remedies.toml": "reference/remedies.md",
    "signatures": "failures/index.md",
    "trainers.toml": "reference/trainers.md",
    "variables.toml": "reference/variables.md",
}
DATA = "packages/rocsteady_knowledge/src/rocsteady_knowledge/data"
TO_DATA = re.compile(rf"\]\((?:\.\./)+{DATA}/([a-z.]+)\)")


def link_pages(_app: Sphinx, _name: str, text: list[str]) -> None:
    """Lead links on data to the page that is made from it."""
    text[0] = TO_DATA.sub(lambda link: f"](/{PAGE_OF[link[1]]})", text[0])


NAMED = {  # what the theme leaves without a name or a level, which screen readers need
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    'class="caption" role="heading">': 'class="caption" role="heading" aria-level="2">',
}


def name_landmarks(app: Sphinx, error: Exception | None) -> None:
    """Name the parts of each page."""
    for page in () if error else Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for old, new in NAMED.items():
            text = text.replace(old, new)
        page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Let Sphinx call it."""
    app.connect("source-read", link_pages)
    app.connect("build-finished", name_landmarks)
