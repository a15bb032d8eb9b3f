"""What a text file sets, whatever its format."""

from __future__ import annotations

import time

import pytest

from rocsteady.doctor.env.variable_files import assignments

AB = {"HSA_A": "1", "HSA_B": "2"}
ABC = {**AB, "HSA_C": "3"}
FILES = {
    "run.sh": (
        ("#!/bin/bash\n"
        "export HSA_A=1 HSA_B='two words' # HSA_X=1\n"
        'export HSA_C="${HSA_C:-3}" HSA_D=$(nproc)\n'
        "HSA_E=5\n"
        "HSA_F=6 python train.py --lr=0.1\n"
        "export HSA_G=7; unset HSA_A HSA_G\n"
        "if true; then export HSA_H=8; fi\n"
        "cat > job.sh <<EOF\nexport HSA_L=12\nEOF\n"
        'echo "export HSA_X=1"\n'
        "HSA_I=9\nexport HSA_I\n"
        "python -c 'import os\nprint(1)'\n"
        "export HSA_J=10 \\\n  HSA_K=11\n"),
        {
            "HSA_A": "1", "HSA_B": "two words", "HSA_C": "3", "HSA_D": None, "HSA_E": "5",
            "HSA_F": "6", "HSA_G": "7", "HSA_H": "8", "HSA_I": "9", "HSA_J": "10", "HSA_K": "11",
            "HSA_L": "12",
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
        "  other:\n    environment:\n      - HSA_C=3\n      - 'HSA_D=4'\n      # - HSA_X=1\n"),
        {"HSA_A": "1", "HSA_B": "two", "HSA_C": "3", "HSA_D": "4"},
    ),
    "pod.yml": (
        ("spec:\n  containers:\n  - name: train\n    env:\n    - name: HSA_A\n      value: '1'\n"
        "    - {name: HSA_B, value: 2}\n    - name: HSA_C\n      valueFrom: {}\n    image: x\n"),
        {"HSA_A": "1", "HSA_B": "2", "HSA_C": None},
    ),
    "Dockerfile": (
        ("FROM rocm/pytorch\nENV HSA_A 1\n# ENV HSA_X=1\nENV HSA_B=2 HSA_C=3\n"
        "ENV HSA_D=4 \\\n    HSA_E=5\nRUN HSA_F=6 python a.py\n"),
        {f"HSA_{letter}": str(n) for n, letter in enumerate("ABCDEF", 1)},
    ),
    "train.py": (
        ('import os\nos.environ["HSA_A"]="1"\nos.environ[\'HSA_B\'] = "2"\n'
        'os.environ.setdefault("HSA_C", "3")\nif os.environ["HSA_X"] == "1":\n    pass\n'),
        ABC,
    ),
    "train.ipynb": ('{"source": ["os.environ[\\"HSA_A\\"] = \\"1\\"\\n", "%env HSA_B=2\\n"]}', AB),
    "run.ps1": ('$env:HSA_A = "1"\n$env:HSA_B=2\n', AB),
    "run.bat": ("REM set HSA_X=1\nset HSA_A=1\nsetx HSA_B 2\n", AB),
    "train.service": ('[Service]\nEnvironment="HSA_A=1" HSA_B=2\n', AB),
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


def test_what_a_script_does_not_export_is_not_seen_by_its_programs() -> None:
    text = FILES["run.sh"][0]

    exported = {each.name: each.exported for each in assignments(text, "run.sh")}

    assert [name for name, seen in exported.items() if not seen] == ["HSA_E"]


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


@pytest.mark.parametrize(
    "text", ["export 'HSA_A=1\n", "((((", "<<", "\0\x1b", "ENV", "export", "a: [1\nb: 2\n"]
)
def test_a_damaged_file_is_no_crash(text: str) -> None:
    for file in ("a.sh", ".env", "a.yaml", "Dockerfile"):
        assert isinstance(assignments(text, file), tuple)


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
        "services:\n  base:\n    environment: [HSA_A=2, 'HSA_B=3']\n"
        "  train:\n    environment: {HSA_B: 4, HSA_C: 5}\n"
    )

    found = {(each.block, each.name): each.value for each in assignments(text, "compose.yaml")}

    assert found == {(3, "HSA_A"): "2", (3, "HSA_B"): "3", (5, "HSA_B"): "4", (5, "HSA_C"): "5"}


def test_a_file_of_tens_of_thousands_of_lines_is_read_in_seconds() -> None:
    script = "".join(f'echo "{n}" && python train.py --x={n}\n' for n in range(40_000))
    began = time.process_time()

    assert len(assignments(f"{script}export HSA_A=1\n", "run.sh")) == 1
    assert time.process_time() - began < 5


def test_blank_lines_cost_no_more_than_others() -> None:
    began = time.process_time()

    assert len(assignments("\n" * 100_000 + "export HSA_A=1\n", "run.sh")) == 1
    assert time.process_time() - began < 10


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
    (found,) = assignments(line, "run.sh")

    assert (found.name, found.value, found.exported) == ("HSA_A", "1", True)


SLOW = {
    "assignments": "A1=1 " * 50_000 + "\n" + "env " * 50_000,
    "continued": "AB=1 \\\n" * 50_000,
    "opened": "AB=" + "${" * 100_000,
    "substituted": "AB=" + "$(" * 100_000,
    "quoted": 'AB="' + " AB='" * 50_000,
    "spaces": "AB" + " " * 200_000 + "{" * 100_000,
    "names": "name: AB " * 50_000,
    "commas": "{, " * 100_000,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_a_file_made_to_be_slow_is_read_in_seconds(text: str) -> None:
    began = time.process_time()

    found = assignments(text, "a.sh")

    assert sum(len(each.value or "") for each in found) < 300_000
    assert time.process_time() - began < 5
