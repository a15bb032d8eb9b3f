"""What each format sets, as its own program would read it."""

from __future__ import annotations

import time

import pytest

from rocsteady.doctor.variable_files import Reach, assignments
from rocsteady.errors import ExaminationError

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
    ".env": ("# a\nHSA_A=1\nexport HSA_B='2'\nHSA_C=3 # three\n", ABC),
    "rocsteady.toml": (
        'command = "env HSA_A=1 python train.py"\n[resume]\nenvironment = { HSA_B = "2" }\n',
        {"HSA_A": "1", "HSA_B": "2"},
    ),
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


def test_the_line_is_that_of_the_name_also_in_a_long_command() -> None:
    text = "# a\nexport HSA_A=1 \\\n  HSA_B=2 \\\n  HSA_C=3\n"

    assert {each.name: each.place for each in assignments(text, "run.sh")} == {
        "HSA_A": "line 2",
        "HSA_B": "line 3",
        "HSA_C": "line 4",
    }


def test_the_line_of_a_value_in_yaml_is_known() -> None:
    text = FILES["compose.yaml"][0]

    assert {each.name: each.place for each in assignments(text, "compose.yaml")} == {
        "HSA_A": "line 5",
        "HSA_B": "line 6",
        "HSA_C": "line 11",
        "HSA_D": "line 12",
    }


def test_a_format_is_known_by_its_first_words_where_the_name_does_not_say() -> None:
    for named, unnamed in (("compose.yaml", "stack"), ("run.sh", "run")):
        text = FILES[named][0]
        assert assignments(text, unnamed) == assignments(text, named)


@pytest.mark.parametrize("text", ["export 'HSA_A=1\n", "((((", "<<", "\0\x1b", "ENV", "export"])
def test_a_damaged_script_is_no_crash(text: str) -> None:
    for file in ("a.sh", ".env"):
        assert isinstance(assignments(text, file), tuple)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("rocsteady.toml", "a = = 1"),
        ("a.yaml", "a: [1\nb: 2\n"),
        ("a.yaml", "\0\x1b"),
        ("a.yaml", "a: *nothing\n"),
        ("a.yaml", "[" * 100_000),
        ("Dockerfile", "ENV HSA_A=1\n"),
        ("run.ps1", "$env:HSA_A = 1\n"),
        ("train.ipynb", "{}"),
        ("train.py", "import os\n"),
    ],
)
def test_what_cannot_be_read_is_an_error(file: str, text: str) -> None:
    with pytest.raises(ExaminationError) as raised:
        assignments(text, file)

    assert len(str(raised.value).splitlines()) == 1


def test_an_error_in_yaml_names_its_line() -> None:
    with pytest.raises(ExaminationError, match="line 2: "):
        assignments("a: [1\nb: 2\n", "compose.yaml")


def test_nothing_in_yaml_is_constructed() -> None:
    text = "services:\n  a:\n    environment:\n      HSA_A: !!python/object/apply:os.getcwd []\n"

    assert assignments(text, "compose.yaml") == ()


def test_aliases_that_multiply_or_contain_themselves_are_read_in_seconds() -> None:
    levels = "".join(
        f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
    )
    text = f"x0: &x0 {{HSA_A: 1}}\n{levels}me: &me {{<<: *me, a: *me}}\nenvironment: *x29\n"
    began = time.process_time()

    assert [each.name for each in assignments(text, "a.yaml")] == ["HSA_A"]
    assert time.process_time() - began < 5


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


def test_a_file_of_tens_of_thousands_of_lines_is_read_in_seconds() -> None:
    script = "".join(f'echo "{n}" && python train.py --x={n}\n' for n in range(40_000))
    began = time.process_time()

    assert len(assignments(f"{script}export HSA_A=1\n", "run.sh")) == 1
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


def test_a_file_made_to_be_slow_is_read_in_seconds() -> None:
    began = time.process_time()

    found = assignments("A=1 " * 50_000 + "\n" + "env " * 50_000, "a.sh")

    assert sum(len(each.value or "") for each in found) < 20_000
    assert time.process_time() - began < 10
