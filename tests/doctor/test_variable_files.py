"""What each format sets, as its own program would read it."""

from __future__ import annotations

import json
import time

import pytest

from rocsteady.doctor.shell_variables import Reach
from rocsteady.doctor.variable_files import assignments
from rocsteady.errors import ExaminationError

NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "source": ["%env HSA_A=9"]},
            {"cell_type": "code", "source": ["%env HSA_A=1\n", "import os\n", "%set_env HSA_B 2"]},
            {"cell_type": "code", "source": "os.environ['HSA_C'] = '3'\n!export HSA_D=4"},
            {"cell_type": "code", "source": "%%bash\nexport HSA_E=5\npython train.py"},
        ]
    }
)
ABC = {"HSA_A": "1", "HSA_B": "2", "HSA_C": "3"}
FILES = {
    "run.sh": (
        ("#!/bin/bash\n"
        "export HSA_A=1 HSA_B='two words' # HSA_X=1\n"
        'export HSA_C="${HSA_C:-3}" HSA_D=$(nproc)\n'
        "HSA_E=5\n"
        "HSA_F=6 python train.py --lr=0.1\n"
        "export HSA_G=7; unset HSA_A HSA_G\n"
        "if true; then export HSA_H=8; fi\n"
        "cat <<EOF\nexport HSA_X=1\nEOF\n"
        'echo "export HSA_X=1"\n'
        "HSA_I=9\nexport HSA_I\n"
        "python -c 'import os\nprint(1)'\n"
        "export HSA_J=10 \\\n  HSA_K=11\n"),
        {
            "HSA_A": "1", "HSA_B": "two words", "HSA_C": "3", "HSA_D": None, "HSA_E": "5",
            "HSA_F": "6", "HSA_G": "7", "HSA_H": "8", "HSA_I": "9", "HSA_J": "10", "HSA_K": "11",
        },
    ),
    "train.sbatch": (
        ("#!/bin/bash\n#SBATCH --export=ALL,HSA_A=1,HSA_B=2\n#SBATCH --gpus=8\n"
        "srun --export=ALL,HSA_C=3 python train.py\n"
        "docker run -e HSA_D=4 --env HSA_E=5 --env=HSA_F=6 image\nmpirun -x HSA_G=7 a.out\n"),
        {f"HSA_{letter}": str(n) for n, letter in enumerate("ABCDEFG", 1)},
    ),
    "login.csh": ("setenv HSA_A 1\n", {"HSA_A": "1"}),
    "conf.fish": ("set -gx HSA_A 1\n", {"HSA_A": "1"}),
    "all.sh": ("set -a\nHSA_A=1\n", {"HSA_A": "1"}),
    "Dockerfile": (
        ('FROM rocm/pytorch\nARG HSA_X=1\nENV HSA_A=1 HSA_B="two words" \\\n    HSA_C=3\n'
        "ENV HSA_D four five\nRUN export HSA_X=2 && make\n"),
        {
            "HSA_A": "1", "HSA_B": "two words", "HSA_C": "3", "HSA_D": "four five", "HSA_X": "2",
        },
    ),
    "compose.yaml": (
        ("services:\n  train:\n    image: rocm/pytorch\n    environment:\n      HSA_A: 1\n"
        '      HSA_B: "two"   # comment\n      # HSA_X: 1\n    shm_size: 16gb\n'
        "  other:\n    environment:\n      - HSA_C=3\n      - 'HSA_D=4'\n    command: HSA_X=1\n"),
        {"HSA_A": "1", "HSA_B": "two", "HSA_C": "3", "HSA_D": "4"},
    ),
    "pod.yml": (
        ("spec:\n  containers:\n  - name: train\n    env:\n    - name: HSA_A\n      value: '1'\n"
        "    image: x\n"),
        {"HSA_A": "1"},
    ),
    "train.service": (
        "[Service]\nEnvironment=\"HSA_A=1\" HSA_B=2 'HSA_C=three four'\nExecStart=/bin/true\n",
        {"HSA_A": "1", "HSA_B": "2", "HSA_C": "three four"},
    ),
    ".env": ("# a\nHSA_A=1\nexport HSA_B='2'\nHSA_C=3 # three\n", ABC),
    "rocsteady.toml": (
        'command = "env HSA_A=1 python train.py"\n[resume]\nenvironment = { HSA_B = "2" }\n',
        {"HSA_A": "1", "HSA_B": "2"},
    ),
    "train.py": (
        ("import os\nos.environ['HSA_A'] = '1'\nos.environ.setdefault(\"HSA_B\", \"2\")\n"
        "# os.environ['HSA_X'] = '1'\nos.environ['HSA_C'] = str(3)\n"),
        {"HSA_A": "1", "HSA_B": "2", "HSA_C": None},
    ),
    "run.ps1": ('$env:HSA_A = "1"; $Env:HSA_B=2\n', {"HSA_A": "1", "HSA_B": "2"}),
    "run.bat": ('@echo off\nset HSA_A=1\nset "HSA_B=2"\nsetx HSA_C 3\n', ABC),
    "train.ipynb": (NOTEBOOK, {**ABC, "HSA_D": "4", "HSA_E": "5"}),
}  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_a_file_sets_just_these(file: str) -> None:
    text, expected = FILES[file]

    assert {each.name: each.value for each in assignments(text, file)} == expected


def test_what_a_script_does_not_export_stays_in_the_shell() -> None:
    text = FILES["run.sh"][0]

    reach = {each.name: each.reach for each in assignments(text, "run.sh")}

    assert reach["HSA_E"] is Reach.SHELL
    assert {reach[name] for name in ("HSA_F", "HSA_H", "HSA_I")} == {Reach.PROGRAMS}


def test_a_shell_of_a_notebook_ends_with_its_line() -> None:
    found = {each.name: each for each in assignments(NOTEBOOK, "train.ipynb")}

    assert found["HSA_A"].reach is Reach.PROGRAMS
    assert found["HSA_D"].reach is Reach.LINE
    assert found["HSA_E"].reach is Reach.PROGRAMS  # the cell starts a program
    assert found["HSA_B"].place == "cell 1, line 3"


def test_the_line_is_that_of_the_name_also_in_a_long_command() -> None:
    text = FILES["Dockerfile"][0]

    assert {each.name: each.place for each in assignments(text, "Dockerfile")} == {
        "HSA_A": "line 3",
        "HSA_B": "line 3",
        "HSA_C": "line 4",
        "HSA_D": "line 5",
        "HSA_X": "line 6",
    }


def test_a_format_is_known_by_its_first_words_where_the_name_does_not_say() -> None:
    for named, unnamed in (("Dockerfile", "image"), ("train.service", "unit"), ("run.sh", "run")):
        text = FILES[named][0]
        assert assignments(text, unnamed) == assignments(text, named)


@pytest.mark.parametrize("text", ["export 'HSA_A=1\n", "((((", "<<", "\0\x1b", "ENV", "export"])
def test_a_damaged_script_is_no_crash(text: str) -> None:
    for file in ("a.sh", "Dockerfile", "a.yaml", "a.service", ".env", "a.py", "a.ps1", "a.bat"):
        assert isinstance(assignments(text, file), tuple)


@pytest.mark.parametrize(("file", "text"), [("a.ipynb", "{"), ("rocsteady.toml", "a = = 1")])
def test_what_cannot_be_read_is_said(file: str, text: str) -> None:
    with pytest.raises(ExaminationError):
        assignments(text, file)


SUBSTITUTED = """export HSA_A=$(nproc --all) HSA_B=2
export HSA_C="$(grep -c 'x)' "/a b")" HSA_D=4
HSA_E=`cat "a b"` python train.py
export HSA_F="it's $(a (b) 'c' )" HSA_G=7 # HSA_X=$(
export HSA_H=$(
  nproc --all
) HSA_I=9
"""


def test_what_a_command_prints_is_one_value() -> None:
    found = {each.name: each.value for each in assignments(SUBSTITUTED, "run.sh")}

    assert found == {
        **dict.fromkeys(["HSA_A", "HSA_C", "HSA_E", "HSA_F", "HSA_H"]),
        "HSA_B": "2",
        "HSA_D": "4",
        "HSA_G": "7",
        "HSA_I": "9",
    }


def test_services_of_a_compose_file_are_apart() -> None:
    text = (
        "x-env: &env {HSA_A: 1}\nservices:\n  base:\n    environment: [HSA_A=2, 'HSA_B=3']\n"
        "  train:\n    extends: {service: base}\n    environment: {HSA_B: 4}\n"
        "  other:\n    environment:\n      <<: *env\n      HSA_C: 5\n"
    )

    found = {(each.part, each.name): each.value for each in assignments(text, "compose.yaml")}

    assert found == {
        ("base", "HSA_A"): "2",
        ("base", "HSA_B"): "3",
        ("train", "HSA_A"): "2",
        ("train", "HSA_B"): "4",
        ("other", "HSA_A"): "1",
        ("other", "HSA_C"): "5",
    }


def test_stages_of_an_image_are_apart_and_begin_with_what_they_are_from() -> None:
    text = (
        "FROM rocm AS base\nENV HSA_A=1\nFROM base AS build\nENV HSA_B=2\n"
        "FROM --platform=linux/amd64 base AS train\nENV HSA_C=3\n"
    )

    found = {(each.part, each.name) for each in assignments(text, "Dockerfile")}

    assert found == {
        ("build", "HSA_A"),
        ("build", "HSA_B"),
        ("train", "HSA_A"),
        ("train", "HSA_C"),
    }


def test_a_file_of_tens_of_thousands_of_lines_is_read_in_seconds() -> None:
    script = "".join(f'echo "{n}" && python train.py --x={n}\n' for n in range(40_000))
    cells = "".join(f"os.environ['HSA_{n}'] = '{n}'\n" for n in range(16_000))
    began = time.process_time()

    assert len(assignments(f"{script}export HSA_A=1\n", "run.sh")) == 1
    assert len(assignments(cells, "train.py")) == 16_000
    assert time.process_time() - began < 10


def reaches(text: str, file: str) -> dict[str, tuple[str | None, Reach]]:
    return {each.name: (each.value, each.reach) for each in assignments(text, file)}


def test_what_is_unset_before_a_program_starts_is_still_told() -> None:
    text = "export HSA_A=1 HSA_B=2\nunset HSA_A\npython train.py\nunset HSA_B\n"

    found = {each.name: each for each in assignments(text, "run.sh")}

    assert (found["HSA_A"].reach, found["HSA_A"].until) == (Reach.UNSET, "line 2")
    assert found["HSA_B"].reach is Reach.PROGRAMS


@pytest.mark.parametrize(
    "line",
    [
        "HSA_A=1 python train.py",
        "nohup env HSA_A=1 python train.py &",
        "time HSA_A=1 torchrun train.py",
        "cd x && HSA_A=1 python train.py > log",
        "exec env -u HSA_B HSA_A=1 python train.py",
        "sudo -E HSA_A=1 python train.py",
        "timeout 5h env HSA_A=1 python train.py",
    ],
)
def test_a_value_before_its_command_acts_on_it(line: str) -> None:
    assert reaches(line, "run.sh") == {"HSA_A": ("1", Reach.PROGRAMS)}
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": f"!{line}"}]})
    assert reaches(notebook, "a.ipynb") == {"HSA_A": ("1", Reach.PROGRAMS)}
    assert reaches(f"FROM x\nCMD {line}\n", "Dockerfile") == {"HSA_A": ("1", Reach.PROGRAMS)}


def test_what_a_layer_exports_is_gone_and_what_env_sets_stays() -> None:
    text = (
        "ARG VERSION=10.3.0\nFROM x\nARG MODE\nENV HSA_A=${VERSION} HSA_B=1 HSA_C=$MODE\n"
        "RUN export HSA_B=2 HSA_D=4 && \\\n    pip install torch\n"
        'ENV HSA_E=v-$HSA_B\nENTRYPOINT ["env", "HSA_F=6", "python", "train.py"]\n'
        'CMD ["sh", "-c", "HSA_G=7 python train.py"]\n'
    )

    assert reaches(text, "Dockerfile") == {
        "HSA_A": ("10.3.0", Reach.PROGRAMS),
        "HSA_B": ("1", Reach.PROGRAMS),
        "HSA_C": (None, Reach.PROGRAMS),
        "HSA_D": ("4", Reach.LAYER),
        "HSA_E": ("v-1", Reach.PROGRAMS),
        "HSA_F": ("6", Reach.PROGRAMS),
        "HSA_G": ("7", Reach.PROGRAMS),
    }


PYTHON = """import os
from os import environ
os.environ.update({"HSA_A": "1", 'HSA_B': str(2),
    "HSA_C": "3"})
os.environ.update(HSA_D="4")
os.environ |= {"HSA_E": "5"}
environ["HSA_F"] = "6"
if os.environ["HSA_X"] == "1": pass
os.environ["HSA_G"] = "7"
del os.environ["HSA_G"]
os.environ.pop("HSA_F", None)
"""


def test_python_sets_many_at_once_and_removes() -> None:
    found = reaches(PYTHON, "train.py")

    assert {name: value for name, (value, _) in found.items()} == {
        "HSA_A": "1", "HSA_B": None, "HSA_C": "3", "HSA_D": "4", "HSA_E": "5", "HSA_F": "6",
        "HSA_G": "7",
    }  # fmt: skip
    assert {name for name, (_, reach) in found.items() if reach is Reach.UNSET} == {
        "HSA_F",
        "HSA_G",
    }
    assert next(each for each in assignments(PYTHON, "a.py") if each.name == "HSA_C").place == (
        "line 4"
    )
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": PYTHON}]})
    assert reaches(notebook, "a.ipynb") == found


def test_setx_is_for_windows_that_are_opened_later() -> None:
    batch = (
        'setx HSA_A "1"\nsetx HSA_B 2 /M\nset HSA_C=3 && python train.py\nset HSA_C=\n'
        "setx HSA_D 4\nset HSA_E=5\nset HSA_E=\n"
    )
    shell = (
        'setx HSA_A 1\n[Environment]::SetEnvironmentVariable("HSA_B", "2", "User")\n'
        "$env:HSA_C = '3'\npython train.py\nRemove-Item Env:HSA_C\nsetx HSA_D 4\n"
        "$env:HSA_E = 5\n$env:HSA_E = $null\n"
    )
    expected = {
        "HSA_A": ("1", Reach.LATER),
        "HSA_B": ("2", Reach.LATER),
        "HSA_C": ("3", Reach.PROGRAMS),
        "HSA_D": ("4", Reach.PROGRAMS),  # nothing is started after it
        "HSA_E": ("5", Reach.UNSET),
    }

    assert reaches(batch, "run.bat") == expected
    assert reaches(shell, "run.ps1") == expected


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", "os.environ.update(" * 20_000),
        ("a.ps1", "Remove-Item " * 20_000),
        ("a.bat", "x" * 300_000),
        ("Dockerfile", "ARG A=ab\n" + "ARG A=$A$A\n" * 60 + "ENV HSA_A=$A\n"),
        ("Dockerfile", "ARG A=" + "a" * 999 + "\nENV HSA_A=" + "$A" * 100_000 + "\n"),
        ("a.sh", "A=1 " * 50_000 + "\n" + "env " * 50_000),
    ],
)
def test_a_file_made_to_be_slow_is_read_in_seconds(file: str, text: str) -> None:
    began = time.process_time()

    found = assignments(text, file)

    assert sum(len(each.value or "") for each in found) < 20_000
    assert time.process_time() - began < 10
