"""How a script resumes, read from its text: thirty scripts, and what is no way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from resume_table import README_SCRIPT, Case, cases, held_out_cases
from rocsteady_train.inside import wire

from rocsteady.run.checkpoints.checkpoints import without_option
from rocsteady.run.checkpoints.own_checkpoints import OwnCheckpoint, without_files
from rocsteady.run.checkpoints.resume_detection import ResumeSign, detect_resume

SCRIPTS = Path(__file__).parent / "resume_scripts"


def folder_of(case: Case, tmp_path: Path) -> tuple[str, ...]:
    scripts = SCRIPTS / ("held_out" if case.held_out else "scripts")
    shutil.copytree(scripts / "helpers", tmp_path, dirs_exist_ok=True)
    script = scripts / case.command[0]
    if case.command[0].endswith(".py"):
        shutil.copy(script if script.exists() else README_SCRIPT, tmp_path)
        return ("python", *case.command)
    return ("python", *case.command) if case.command[0] == "-m" else case.command


WAYS = {
    "f11_hf_parser": ("--resume_from_checkpoint", "{checkpoint}"),
    "f12_hf_last": (),
    "f13_lightning_path": ("--ckpt_path", "{checkpoint}"),
    "f14_lightning_last": (),
    "f15_accelerate": ("--resume_from_checkpoint", "{checkpoint}"),
    "f16_diffusers": ("--resume_from_checkpoint", "{checkpoint}"),
    "f17_deepspeed": ("--load_dir", "{checkpoint}"),
    "f18_dcp": ("--resume",),
    "f19_nnunet": ("--c",),
    "f20_trl": ("--resume_from_checkpoint", "{checkpoint}"),
    "t01_imagenet": ("--resume", "{checkpoint}"),
    "t02_nanogpt": ("--init_from=resume",),
    "t04_general_checkpoint": (),
    "t05_snapshot": (),
    "t06_references": ("--resume", "{checkpoint}"),
    "t08_cleanrl": ("--resume", "{checkpoint}"),
    "t09_readme": ("--resume", "{checkpoint}"),
    "t10_seq2seq": (),
    "u21_flag_newest": ("--resume",),
    "u23_finetune": (),
    "u25_timestamp": ("--ckpt", "{checkpoint}"),
    "u26_best_and_last": ("--resume-from", "{checkpoint}"),
    "u27_hydra": ("train.resume_from={checkpoint}",),
    "u28_two_stages": (),
    "u29_late_load": ("--load", "{checkpoint}"),
    "u30_click_csv": ("--resume", "{checkpoint}"),
}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_thirty_scripts(case: Case, tmp_path: Path) -> None:
    method = detect_resume(folder_of(case, tmp_path), tmp_path)

    assert (method.how is not ResumeSign.UNKNOWN) == case.resumes, method.words
    assert method.arguments == WAYS.get(case.name, ())


UNSEEN = {
    "h31_argv": (ResumeSign.OPTION, ("continue",), ""),
    "h32_environment": (ResumeSign.OPTION, (), "RESTORE_FROM"),
    "h33_pointer": (ResumeSign.ITSELF, (), ""),
    "h34_package": (ResumeSign.OPTION, ("--auto-resume",), ""),
    "h35_fire": (ResumeSign.OPTION, ("--init", "{checkpoint}"), ""),
    "h36_subcommands": (ResumeSign.UNKNOWN, (), ""),
    "h37_rotating": (ResumeSign.ITSELF, (), ""),
    "h38_deque": (ResumeSign.UNKNOWN, (), ""),
}


@pytest.mark.parametrize("case", held_out_cases(), ids=lambda case: case.name)
def test_scripts_that_were_written_before_the_detection_knew_their_ways(
    case: Case, tmp_path: Path
) -> None:
    method = detect_resume(folder_of(case, tmp_path), tmp_path)

    assert (method.how, method.arguments, method.variable) == UNSEEN[case.name]


@pytest.mark.parametrize("look", ["newest()", "(found := newest())"])
def test_a_function_that_looks_for_the_newest_counts_as_looking(tmp_path: Path, look: str) -> None:
    (tmp_path / "train.py").write_text(
        f"""
from pathlib import Path
import torch
def newest():
    return max(Path("out").glob("*.pt"), default=None)
found = newest()
if {look} is not None:
    state = torch.load(found)
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
"""
    )

    assert detect_resume(("python", "train.py"), tmp_path).how is ResumeSign.ITSELF


@pytest.mark.parametrize(
    "line",
    [
        'if "--resume" in sys.argv: model.load_state_dict(torch.load("last.pt"))',
        'if os.environ.get("DEBUG"): state = torch.load("last.pt")',
        'model.load_state_dict(torch.load(os.environ["CHECKPOINT"]))',
    ],
)
def test_words_and_variables_by_which_only_weights_are_loaded_are_no_way(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "train.py").write_text(f"import os, sys, torch\n{line}\n")

    assert detect_resume(("python", "train.py"), tmp_path).how is ResumeSign.UNKNOWN


def test_a_script_with_our_loop_is_not_told_that_it_cannot_resume(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from rocsteady_train import Loop\nloop = Loop(epochs=1)\n")
    (tmp_path / "other.py").write_text("loop = Loop(epochs=1)  # of somebody else\n")

    assert detect_resume(("python", "train.py"), tmp_path).reports == "train.py:2"
    assert detect_resume(("python", "other.py"), tmp_path).reports == ""


def test_the_first_line_names_what_was_found_and_where(tmp_path: Path) -> None:
    shutil.copy(README_SCRIPT, tmp_path)
    line = 1 + next(
        number
        for number, text in enumerate(README_SCRIPT.read_text().splitlines())
        if '"--resume"' in text
    )

    method = detect_resume(("python", "train.py"), tmp_path)

    assert method.words == f"resumes with --resume checkpoints/last.pt (found in train.py:{line})"


RESUMES = """
import argparse, shutil, os, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume", OPTION)
parser.add_argument("--out", default="out")
parser.add_argument("--overwrite", action="store_true")
args = parser.parse_args()
START
os.makedirs(args.out, exist_ok=True)
model, optimizer, first = torch.nn.Linear(1, 1), None, 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    OPTIMIZER
    first = COUNTER
for step in range(first, 10):
    torch.save({}, os.path.join(args.out, "last.pt"))
"""
PARTS = {
    "OPTION": "default=None",
    "START": "",
    "OPTIMIZER": 'optimizer.load_state_dict(state["optimizer"])',
    "COUNTER": 'state["step"]',
}


def detected(tmp_path: Path, *arguments: str, **parts: str) -> tuple[ResumeSign, str]:
    text = RESUMES
    for name, part in {**PARTS, **parts}.items():
        text = text.replace(name, part)
    (tmp_path / "train.py").write_text(text)
    method = detect_resume(("python", "train.py", *arguments), tmp_path)
    return method.how, method.why_not


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            {"OPTIMIZER": "pass"},
            (
                "train.py:12 loads weights; found no optimizer state. Save it too, and add"
                ' optimizer.load_state_dict(checkpoint["optimizer"])'
            ),
        ),
        (
            {"COUNTER": "0"},
            (
                "train.py:12 loads weights; found no step. Save it too, and add"
                ' start = checkpoint["step"]'
            ),
        ),
        (
            {"OPTIMIZER": "pass", "COUNTER": "0"},
            (
                "train.py:12 loads weights; found no optimizer state and no step."
                ' Save it too, and add optimizer.load_state_dict(checkpoint["optimizer"]) and'
                ' start = checkpoint["step"]'
            ),
        ),
        ({"OPTION": 'choices=["allow", "must"]'}, ""),
        ({"OPTION": "type=int"}, ""),
        (
            {"START": "shutil.rmtree(args.out, ignore_errors=True)"},
            "train.py:8 deletes its output folder at every start",
        ),
    ],
)
def test_what_would_lose_work_is_no_way(tmp_path: Path, parts: dict[str, str], why: str) -> None:
    assert detected(tmp_path, **parts) == (ResumeSign.UNKNOWN, why)


@pytest.mark.parametrize(
    "start",
    [
        "if not args.resume: shutil.rmtree(args.out)",
        "if args.overwrite: shutil.rmtree(args.out)",
        "for old in os.listdir(args.out): shutil.rmtree(os.path.join(args.out, old))",
        'args.out = args.out + time.strftime("%H%M")',
    ],
)
def test_what_does_not_touch_the_checkpoint_that_is_named_does_not_count(
    tmp_path: Path, start: str
) -> None:
    assert detected(tmp_path, START=start) == (ResumeSign.OPTION, "")


def test_a_folder_that_is_deleted_because_the_user_said_so(tmp_path: Path) -> None:
    start = "if args.overwrite: shutil.rmtree(args.out)"

    assert detected(tmp_path, "--overwrite", START=start)[0] is ResumeSign.UNKNOWN


def test_a_path_that_the_user_gave_is_named(tmp_path: Path) -> None:
    text = RESUMES
    for name, part in PARTS.items():
        text = text.replace(name, part)
    (tmp_path / "train.py").write_text(text)

    method = detect_resume(("python", "train.py", "--resume", "base.pt"), tmp_path)

    assert (method.how, method.given) == (ResumeSign.OPTION, "base.pt")


def test_a_folder_named_by_the_time_is_not_found_again_by_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import os, time, torch
out = f"out/{time.strftime('%H%M%S')}"
last = os.path.join(out, "last.pt")
if os.path.exists(last):
    state = torch.load(last)
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
torch.save(state, last)
"""
    )

    method = detect_resume(("python", "train.py"), tmp_path)

    assert method.how is ResumeSign.UNKNOWN
    assert method.why_not == "train.py:9: each start writes to another folder"


@pytest.mark.parametrize(
    ("typed", "arguments", "checkpoints"),
    [
        ("python t.py --resume_from_checkpoint latest", "--resume_from_checkpoint latest", ()),
        ("trl sft --output_dir o", "--resume_from_checkpoint {checkpoint}", ("o/checkpoint-*",)),
        ("axolotl train c.yml", "--resume-from-checkpoint {checkpoint}", ("out/checkpoint-*",)),
        (
            "accelerate launch -m axolotl.cli.train c.yml",
            "--resume-from-checkpoint {checkpoint}",
            ("out/checkpoint-*",),
        ),
        (
            "llamafactory-cli train c.yml output_dir=other/",
            "resume_from_checkpoint={checkpoint}",
            ("other/checkpoint-*",),
        ),
        (
            "llamafactory-cli train c.yml stage=ppo",
            "resume_from_checkpoint={checkpoint}",
            ("out/checkpoint-*",),
        ),
        ("nnUNetv2_train 1 2d 0 -device cpu", "--c", ()),
        ("yolo detect train data=d.yaml", "model={checkpoint} resume=True", ()),
        ("yolo task=detect mode=train", "model={checkpoint} resume=True", ()),
        (
            "accelerate launch sd/train_network.py --save_state --output_dir o",
            "--resume {checkpoint}",
            ("o/*-state",),
        ),
        (
            "accelerate launch train_network.py --config_file=c.toml",
            "--resume {checkpoint}",
            ("lora/*-state",),
        ),
        (
            "python scripts/train.py --config-path c.json",
            "--config-value continue_last_backup=true",
            ("w/backup/*-backup-*",),
        ),
        ("python run.py c.yml", "", ()),
        (
            "accelerate launch train_dreambooth_lora.py --output_dir=o",
            "--resume_from_checkpoint {checkpoint}",
            ("o/checkpoint-*",),
        ),
    ],
)
def test_trainers_commands(
    tmp_path: Path, typed: str, arguments: str, checkpoints: tuple[str, ...]
) -> None:
    (tmp_path / "c.yml").write_text("output_dir: ./out  # a comment\n")
    (tmp_path / "c.toml").write_text('output_dir = "lora"\nsave_state = true\n')
    (tmp_path / "c.json").write_text('{"a": 1, "workspace_dir": "w"}')

    method = detect_resume(typed.split(), tmp_path)

    assert method.how in (ResumeSign.TRAINER, ResumeSign.COMMAND)
    assert " ".join(method.arguments) in (arguments, arguments.partition(" ")[0])
    assert tuple(each.removeprefix("./") for each in method.checkpoints) == checkpoints


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        ("llamafactory-cli train c.yml", "c.yml:2"),
        ("llamafactory-cli train d.yml overwrite_output_dir=true", "overwrite_output_dir"),
        ("llamafactory-cli train d.yml stage=ppo finetuning_type=full", "stage"),
        ("trl sft --save_strategy no", "save_strategy"),
        ("accelerate launch train_network.py --output_dir o", "--save_state"),
        ("nnUNetv2_train 1 2d 0 --disable_checkpointing", "disable_checkpointing"),
        ("unsloth train -c d.yml", "resume_from_checkpoint"),
        ("bash train.sh", ""),
    ],
)
def test_what_prevents_a_trainer_from_resuming_is_told_with_the_line(
    tmp_path: Path, typed: str, where: str
) -> None:
    (tmp_path / "c.yml").write_text("output_dir: out\noverwrite_output_dir: true\n")
    (tmp_path / "d.yml").write_text("output_dir: out\n# overwrite_output_dir: true\n")

    method = detect_resume(typed.split(), tmp_path)

    assert method.how is ResumeSign.UNKNOWN
    assert where in method.why_not


@pytest.mark.parametrize(("typed", "unproven"), [("trl sft", False), ("python run.py", True)])
def test_the_first_restart_of_a_trainer_that_was_never_run_is_checked(
    tmp_path: Path, typed: str, *, unproven: bool
) -> None:
    assert detect_resume(typed.split(), tmp_path).inferred is unproven


def test_a_script_of_the_users_own_with_a_trainers_name_is_no_trainer(tmp_path: Path) -> None:
    (tmp_path / "train_network.py").write_text("print(1)\n")

    method = detect_resume(("python", "train_network.py", "--save_state"), tmp_path)

    assert method.how is ResumeSign.UNKNOWN


DEEPSPEED = """
import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--load_dir")
args = parser.parse_args()
engine = deepspeed.initialize()[0]
if args.load_dir:
    engine.load_checkpoint(args.load_dir)
{loop}:
    engine.step()
"""
RAY = """
import os, torch
import ray.train
from ray.train.torch import TorchTrainer

def train(config):
    first, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, 9):
        optimizer.step()

TorchTrainer(train, run_config=RunConfig({config})).fit()
"""


@pytest.mark.parametrize(
    ("loop", "counted"),
    [
        ("while engine.global_steps < 9", True),
        ("for step in range(engine.global_steps, 9)", True),
        ("first = engine.global_steps\nfor step in range(first, 9)", True),
        ("while step < engine.train_batch_size()", False),
        ("first = engine.global_steps\nfor step, x in enumerate(data, first)", True),
        ("for step in range(9)", False),
    ],
)
def test_a_loop_may_begin_where_deepspeeds_engine_says(
    tmp_path: Path, loop: str, *, counted: bool
) -> None:
    (tmp_path / "train.py").write_text(DEEPSPEED.format(loop=loop))

    method = detect_resume(("deepspeed", "--num_gpus", "1", "train.py"), tmp_path)

    assert (method.how is ResumeSign.OPTION) is counted


@pytest.mark.parametrize(
    "load",
    [
        'engine.load_checkpoint("ckpt")',
        '_, state = engine.load_checkpoint("ckpt")',
        'if os.path.isdir("ckpt"):\n    engine.load_checkpoint("ckpt")',
    ],
)
def test_deepspeeds_engine_looks_itself_whether_there_is_a_checkpoint(
    tmp_path: Path, load: str
) -> None:
    script = "import deepspeed, os\nengine = deepspeed.initialize(model=net)[0]\n"
    loop = "\nfor step in range(engine.global_steps, 9):\n    engine.step()\n"
    (tmp_path / "train.py").write_text(script + load + loop)

    method = detect_resume(("deepspeed", "train.py"), tmp_path)

    assert method.how is ResumeSign.ITSELF


def test_what_a_script_with_deepspeed_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import deepspeed\nengine = deepspeed.initialize()[0]\n")

    method = detect_resume(("deepspeed", "train.py"), tmp_path)

    assert method.how is ResumeSign.UNKNOWN
    assert "DeepSpeed" in method.why_not


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ('name="tiny", storage_path="/data/results"', ""),
        ('name="tiny"', ""),
        ('storage_path="/data/results"', "name"),
    ],
)
def test_ray_goes_on_where_a_run_of_the_same_name_ended(
    tmp_path: Path, config: str, told: str
) -> None:
    (tmp_path / "train.py").write_text(RAY.format(config=config))

    method = detect_resume(("python", "train.py"), tmp_path)

    assert method.how is (ResumeSign.UNKNOWN if told else ResumeSign.ITSELF)
    assert told in method.why_not


HF = """
from transformers import Trainer, TrainingArguments
trainer = Trainer(model, TrainingArguments(output_dir="out", save_strategy={strategy!r}))
trainer.train({resume})
"""


@pytest.mark.parametrize(
    ("strategy", "resume", "how", "why"),
    [
        ("steps", "resume_from_checkpoint=get_last_checkpoint('out')", ResumeSign.ITSELF, ""),
        ("steps", "", ResumeSign.UNKNOWN, "resume_from_checkpoint"),
        ("no", "resume_from_checkpoint=get_last_checkpoint('out')", ResumeSign.UNKNOWN, "t.py:3"),
    ],
)
def test_what_is_known_of_a_library_is_known_of_its_scripts(
    tmp_path: Path, strategy: str, resume: str, how: ResumeSign, why: str
) -> None:
    (tmp_path / "t.py").write_text(HF.format(strategy=strategy, resume=resume))

    method = detect_resume(("python", "t.py"), tmp_path)

    assert method.how is how
    assert why in method.why_not
    if how is ResumeSign.ITSELF:
        assert method.checkpoints == ("out/checkpoint-*",)
        assert method.complete == ("checkpoint-*/trainer_state.json",)


PLAIN = HF.format(strategy="steps", resume="")
IN_A_LOOP = PLAIN.replace("trainer.train()", "for seed in range(3):\n    trainer.train()")


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (PLAIN, True),
        (
            PLAIN.replace("trainer.train()", "Trainer(model).train(resume_from_checkpoint=None)"),
            True,
        ),
        (PLAIN.replace("trainer.", "t.").replace("trainer =", "t ="), True),
        (f"{PLAIN}trainer.train()\n", False),  # which of them is to have the checkpoint?
        (IN_A_LOOP, False),
        (PLAIN.replace("trainer.train()", "import shutil; shutil.rmtree('out')"), False),
        (PLAIN.replace("from transformers", "from unsloth"), False),  # it has a train() of its own
    ],
)
def test_a_plain_call_that_trains_can_be_given_the_checkpoint(
    tmp_path: Path, text: str, *, fits: bool
) -> None:
    (tmp_path / "t.py").write_text(text)

    plain = detect_resume(("python", "t.py"), tmp_path)
    told = detect_resume(("python", "t.py"), tmp_path, resume_trainer=True)

    assert (plain.how, plain.by_trainer) == (ResumeSign.UNKNOWN, fits)
    assert plain.code[0].startswith("from transformers")
    assert told.how is (ResumeSign.TRAINER if fits else ResumeSign.UNKNOWN)
    if not fits and "unsloth" not in text:
        assert "--resume-trainer needs" in told.why_not
    if fits:
        assert "t.py:4" in plain.why_not
        assert told.variable == wire.RESUME_TRAINER
        assert told.checkpoints == ("out/checkpoint-*",)
        assert told.inferred  # until a restart has read the checkpoint


def test_a_way_of_the_script_s_own_goes_before_its_trainer(tmp_path: Path) -> None:
    resume = "resume_from_checkpoint=get_last_checkpoint('out')"
    (tmp_path / "t.py").write_text(HF.format(strategy="steps", resume=resume))

    assert detect_resume(("python", "t.py"), tmp_path, resume_trainer=True).how is ResumeSign.ITSELF


def test_a_folder_without_the_file_that_its_trainer_writes_last_is_cut_off(tmp_path: Path) -> None:
    complete = ("checkpoint-*/trainer_state.json",)
    for name in ("checkpoint-10", "epoch-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "optimizer.pt").write_bytes(b"")
        found = OwnCheckpoint(path=Path(name), written=1, wrong="", cut_off=False, resumable=True)
        assert without_files(found, tmp_path, complete).cut_off is (name == "checkpoint-10")
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("{}")
    found = OwnCheckpoint(
        path=Path("checkpoint-10"), written=1, wrong="", cut_off=False, resumable=True
    )

    assert without_files(found, tmp_path, complete) == found


@pytest.mark.parametrize(
    ("typed", "arguments", "left"),
    [
        ("x --resume a --y", ("--resume", "{checkpoint}"), "x --y"),
        ("yolo train model=a.yaml", ("model={checkpoint}", "resume=True"), "yolo train"),
        (
            "x --config-value rate=1 --y",
            ("--config-value", "continue_last_backup=true"),
            "x --config-value rate=1 --y",
        ),
    ],
)
def test_only_the_option_that_names_the_checkpoint_is_replaced(
    typed: str, arguments: tuple[str, ...], left: str
) -> None:
    assert " ".join(without_option(tuple(typed.split()), arguments)) == left
