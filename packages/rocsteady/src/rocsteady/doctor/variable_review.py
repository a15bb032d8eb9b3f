"""Judges the variables in effect, or those that a file sets, for one machine."""

from __future__ import annotations

import codecs
from pathlib import Path

from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.machine.machine import examine
from rocsteady.doctor.machine.root import Root
from rocsteady.doctor.shell_variables import Assignment
from rocsteady.doctor.values import VariableReview
from rocsteady.doctor.variable_files import assignments
from rocsteady.doctor.variables import judge
from rocsteady.errors import ExaminationError

LARGEST = 1024 * 1024  # bytes


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
        content = read_regular(file, LARGEST)
    except OSError as error:
        raise ExaminationError(f"{file}: {error.strerror}") from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in content and not wide:
        raise ExaminationError(f"{file}: not a text file")
    text = content.decode("utf-16" if wide else "utf-8-sig", "replace")
    try:
        return assignments(text, file.name)
    except ExaminationError as error:
        raise ExaminationError(f"{file}: {error}") from None
