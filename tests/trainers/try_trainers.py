"""Run real trainers under rocsteady: undisturbed, killed, hung in a data worker, with a cut file.

    python tests/trainers/try_trainers.py --environments FOLDER [NAME ...] [--only kill,hang]
    python tests/trainers/try_trainers.py --results FILE --table

makes an environment for each trainer in the folder (torch 2.13 on the CPU; minutes and a GiB each),
runs every case without a job file, and prints a table. ``--results FILE`` keeps each result as a
line of JSON; what is in it is not run again. Nothing is downloaded but packages.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PROJECTS = HERE / "projects"
TORCH = ("torch==2.13.0", "numpy>=2,<3")
TORCHVISION = "torchvision==0.28.0"
WITHIN = 420.0  # seconds for one run
HEALTHY, KILL, HANG, CUT = "healthy", "kill", "hang", "cut"
INIT, INIT_HANG, DRILL = "init", "init-hang", "drill"
SCENARIOS = (HEALTHY, KILL, HANG, CUT, INIT, INIT_HANG, DRILL)


class Trainer(NamedTuple):
    """One way to train."""

    name: str
    environment: str
    command: str  # words; the environment's bin folder is first on PATH
    project: str  # the folder of its files
    checkpoints: str  # a pattern
    steps: int  # optimizer steps of an undisturbed run; 0: not known
    final: str = "final*"  # what must be there at the end
    make: str = ""  # a script that makes model and data
    prepare: str = ""  # a command, after that
    loader: bool = True  # it uses torch's loader with workers; else it hangs in backward
    hung_with: str = ""  # a variable of the run that hangs
    hang_after: str = ""  # where no hang can be proven
    faults: str = ""  # of the drill; a hang and a kill after checkpoints unless told
    within: float = WITHIN
    noted: float = 0.0  # seconds until it has noted a checkpoint where it looks for the newest

    @property
    def drill_faults(self) -> str:
        hang, kill = round(self.steps * 0.3), round(self.steps * 0.6)
        return self.faults or f"hang:backward@{hang},kill@{kill}"


MODEL = "../language_model.py"
TRAINERS = (
    Trainer("transformers", "hf", "python train.py", "hf", "out/checkpoint-*", 216, make=MODEL),
    Trainer(
        "transformers, own resume",
        "hf",
        "python train.py",
        "hf-own",
        "out/checkpoint-*",
        216,
        make=MODEL,
    ),
    Trainer(
        "accelerate launch",
        "hf",
        "accelerate launch --cpu --num_processes 1 train.py",
        "accelerate",
        "out/checkpoint-*",
        90,
    ),
    Trainer(
        "diffusers loop",
        "hf",
        "accelerate launch --cpu --num_processes 1 train.py --resume_from_checkpoint latest",
        "accelerate",
        "out/checkpoint-*",
        90,
    ),
    Trainer(
        "torchrun, 2 ranks",
        "hf",
        "torchrun --nproc-per-node 2 train.py",
        "torchrun",
        "checkpoints/epoch_*.pt",
        150,
    ),
    Trainer(
        "TRL",
        "hf",
        "trl sft --model_name_or_path model --dataset_name data --output_dir out"
        " --per_device_train_batch_size 4 --num_train_epochs 1 --save_steps 20 --max_length 64"
        " --dataloader_num_workers 1 --use_cpu --bf16 False --report_to none",
        "trl",
        "out/checkpoint-*",
        120,
        final="out/model.safetensors",
        make=MODEL,
    ),
    Trainer("Lightning", "lightning", "python train.py", "lightning", "checkpoints/*.ckpt", 180),
    Trainer("MONAI", "lightning", "python train.py", "monai", "checkpoint_epoch_*.pt", 90),
    Trainer(
        "submitit",
        "lightning",
        "python submit.py",
        "submitit",
        "last.pt",
        150,
        loader=False,
        faults="kill@45,segv@90",  # it handles signals, so that a hang is left alone for 5 minutes
    ),
    Trainer(
        "Ultralytics",
        "ultralytics",
        "yolo detect train data=shapes.yaml model=yolo11n.yaml epochs=5 imgsz=64 batch=8 workers=1"
        " device=cpu plots=False",
        "ultralytics",
        "runs/detect/train*/weights/last.pt",
        0,
        final="runs/detect/train/weights/best.pt",
        make="make.py",
        loader=False,  # on the CPU it starts no workers
        faults="hang:backward@3,kill@5",
    ),
    Trainer(
        "LLaMA-Factory",
        "llamafactory",
        "llamafactory-cli train cfg.yaml",
        "llamafactory",
        "saves/tiny/checkpoint-*",
        120,
        final="saves/tiny/model.safetensors",
        make=MODEL,
    ),
    Trainer(
        "axolotl",
        "axolotl",
        "axolotl train cfg.yml",
        "axolotl",
        "out/checkpoint-*",
        120,
        final="out/model.safetensors",
        make=MODEL,
        within=900.0,
    ),
    Trainer(
        "nnU-Net",
        "nnunet",
        "nnUNetv2_train 1 2d 0 -device cpu -tr nnUNetTrainerTiny",
        "nnunet",
        "results/*/*/fold_0/checkpoint_latest.pth",
        72,
        final="results/*/*/fold_0/checkpoint_final.pth",
        make="make.py",
        prepare="nnUNetv2_plan_and_preprocess -d 1 -c 2d -np 1",
        loader=False,
        hung_with="nnUNet_n_proc_DA=0",  # its workers poll: nothing is proven beside them
        within=900.0,
    ),
    Trainer(
        "DeepSpeed",
        "deepspeed",
        "deepspeed --num_gpus 1 train.py",
        "deepspeed",
        "ckpt/global_step*",
        150,
        loader=False,
    ),
    Trainer(
        "Ray Train",
        "deepspeed",
        "python train.py",
        "ray",
        "results/tiny/checkpoint_2*",
        120,
        loader=False,
        hang_after="1m",  # its workers take commands from the network all the time
        faults="kill@44,segv@84",  # its controller notes a checkpoint 2 s later
        within=900.0,
        noted=2.5,
    ),
)
PACKAGES = {
    "hf": ("transformers==5.23.0", "accelerate==1.15.0", "trl==1.16.0", "datasets",
           "diffusers==0.42.1"),
    "lightning": ("lightning==2.6.6", "monai==1.6.1", "submitit==1.5.4"),
    "ultralytics": ("ultralytics==8.4.190", TORCHVISION),
    "llamafactory": ("llamafactory==0.9.5", TORCHVISION),
    "axolotl": ("axolotl==0.19.0", "multiprocess==0.70.16"),
    "nnunet": ("nnunetv2==2.8.1", TORCHVISION),
    "deepspeed": ("setuptools", "wheel", "ninja", "deepspeed==0.19.8", "ray[train]"),
}  # fmt: skip


def make_environment(folder: Path) -> None:
    """Install a trainer beside torch, unless that was done."""
    ready = folder / "ready-for-trials"
    if ready.exists():
        return
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python, packages = str(folder / "bin/python"), PACKAGES[folder.name]
    pip = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *TORCH], check=True)
    separate = ("--no-build-isolation",) if folder.name == "deepspeed" else ()
    subprocess.run([*pip, *separate, *TORCH, *packages], check=True)
    if TORCHVISION in packages:
        subprocess.run([python, PROJECTS / "torchvision_for_cpu.py"], check=True)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    shutil.copy(PROJECTS / "trial_hook.py", site / "trainer_trial_hook.py")
    (site / "trainer_trial.pth").write_text("import trainer_trial_hook\n")
    if folder.name == "llamafactory":  # PyPI's does not load beside a CPU build of torch
        subprocess.run([python, "-m", "pip", "uninstall", "-qy", "torchaudio"], check=True)
        (site / "torchaudio").mkdir(exist_ok=True)
        (site / "torchaudio/__init__.py").touch()
    ready.touch()


class Ended(NamedTuple):
    """How one run under rocsteady ended."""

    code: int
    output: str  # of the trainer
    said: tuple[str, ...]  # by rocsteady
    seconds: float


class Trial:
    """One trainer in a folder of its own."""

    def __init__(self, trainer: Trainer, environments: Path, template: Path) -> None:
        self.trainer, self.bin = trainer, environments / trainer.environment / "bin"
        self.folder = Path(tempfile.mkdtemp(prefix="trainer-")) / "project"
        shutil.copytree(template, self.folder, symlinks=True)
        self.environment = environment(self.folder, self.bin)
        self.home = Path(self.environment["HOME"])

    def plain(self) -> Ended:
        return self._run(self.trainer.command.split())

    def supervised(self, *, harm: str = "", job: bool = False) -> Ended:
        more = dict(self.environment)
        if harm == HANG:
            marker = self.home / "hung"
            place = "worker" if self.trainer.loader else "backward"
            trial = (str(self.folder / self.trainer.checkpoints), str(marker), place)
            more["TRAINER_TRIAL"] = os.pathsep.join(trial)
            name, _, value = self.trainer.hung_with.partition("=")
            more |= {name: value} if name else {}
        words = [] if job else ["--", *self.trainer.command.split()]
        if harm == HANG and self.trainer.hang_after:
            words = ["--hang-after", self.trainer.hang_after, *words]
        return self._run([rocsteady(), "run", "--yes", "--name", "trial", *words], more, harm)

    def init(self, known: Path) -> Ended | None:
        """Have the job file written, or take the one that was written for an earlier trial."""
        if known.exists():
            shutil.copy(known, self.folder)
            return None
        words = ["init", "--yes", "--seconds", "5", "--", *self.trainer.command.split()]
        made = self._run([rocsteady(), *words])
        if (self.folder / known.name).exists():
            shutil.copy(self.folder / known.name, known)
        return made

    def drill(self) -> Ended:
        words = ["--yes", "--json", "--faults", self.trainer.drill_faults]
        more = dict(self.environment)
        name, _, value = self.trainer.hung_with.partition("=")
        more |= {name: value} if name else {}
        command = [rocsteady(), "drill", *words, "--", *self.trainer.command.split()]
        return self._run(command, more)

    def _run(
        self, command: list[str], environment: dict[str, str] | None = None, harm: str = ""
    ) -> Ended:
        began = time.monotonic()
        log, err = self.home / "out.log", self.home / "err.log"
        with log.open("wb") as out, err.open("wb") as error:
            child = subprocess.Popen(
                command, cwd=self.folder, env=environment or self.environment, stdout=out,
                stderr=error, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                if harm in (KILL, CUT):
                    self._harm(child, cut=harm == CUT)
                child.wait(max(1.0, self.trainer.within - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(20)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        lines = err.read_text(errors="replace").replace("\r", "\n").splitlines()
        said = tuple(line for line in lines if line.startswith("rocsteady: "))
        code = child.poll()
        return Ended(
            -99 if code is None else code, log.read_text(errors="replace"), said,
            time.monotonic() - began,
        )  # fmt: skip

    def _harm(self, child: subprocess.Popen[bytes], *, cut: bool) -> None:
        """Kill the process that trains once there are checkpoints; before that cut the newest."""
        deadline = time.monotonic() + self.trainer.within - 60
        one = "*" not in Path(self.trainer.checkpoints).name
        first: float | None = None
        while time.monotonic() < deadline and child.poll() is None:
            found = sorted(
                self.folder.glob(self.trainer.checkpoints), key=lambda it: it.stat().st_mtime
            )
            enough = not one and len(found) >= (3 if cut else 2)
            if one and found and whole(found[-1]):  # one file that is written again and again
                saved = found[-1].stat().st_mtime
                first = first or saved
                enough = saved > first
            begun = cut and found and found[-1].is_dir() and not any(found[-1].iterdir())
            waited = found and time.time() - found[-1].stat().st_mtime >= self.trainer.noted
            if enough and waited and not begun and (training := training_process(child.pid)):
                os.kill(training, signal.SIGSTOP)
                if one and not whole(found[-1]):  # it is being written again
                    os.kill(training, signal.SIGCONT)
                    continue
                if cut:
                    cut_newest(found[-1])
                os.kill(training, signal.SIGKILL)
                return
            time.sleep(0.02)

    def report(self) -> dict[str, Any]:
        done = subprocess.run(
            [rocsteady(), "report", "--json", "trial"], cwd=self.folder, env=self.environment,
            capture_output=True, check=False,
        )  # fmt: skip
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

    def final(self) -> list[str]:
        return sorted(
            str(it.relative_to(self.folder)) for it in self.folder.glob(self.trainer.final)
        )

    def weights(self) -> str:
        digest = hashlib.sha256()
        for name in self.final():
            path = self.folder / name
            for file in sorted(path.rglob("*.safetensors")) if path.is_dir() else [path]:
                digest.update(file.read_bytes())
        return digest.hexdigest()[:12]

    def close(self) -> None:
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def rocsteady() -> str:
    return str(Path(sys.executable).parent / "rocsteady")


def environment(folder: Path, programs: Path) -> dict[str, str]:
    """Give what a user has, with no hub, no tracker and one thread."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "AXOLOTL_DO_NOT_TRACK": "1",
        "DO_NOT_TRACK": "1",
        "YOLO_OFFLINE": "true",
        "DISABLE_VERSION_CHECK": "1",
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": str(programs.parent / "extensions"),  # compiled once
        "nnUNet_raw": str(folder / "raw"),
        "nnUNet_preprocessed": str(folder / "preprocessed"),
        "nnUNet_results": str(folder / "results"),
        "nnUNet_n_proc_DA": "1",
        "nnUNet_def_n_proc": "1",  # else eight, twice, each of which loads torch
        "nnUNet_compile": "f",
    }


def training_process(root: int) -> int | None:
    """Return the Python below a process that has torch loaded and the most memory."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            after = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(after[1]), []).append(int(path.parent.name))
    below, waiting = [], [root]
    while waiting:
        found = children.get(waiting.pop(), [])
        below += found
        waiting += found
    sizes = {pid: memory for pid in below if (memory := _torch_memory(pid))}
    return max(sizes, key=lambda pid: (not _is_worker(pid), sizes[pid])) if sizes else None


def _torch_memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        if "libtorch" in Path(f"/proc/{pid}/maps").read_text():
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0


def _is_worker(pid: int) -> bool:
    """Return whether a process is a fork of its parent, as a loader's worker is."""
    with contextlib.suppress(OSError):
        parent = re.search(r"PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
        above = Path(f"/proc/{parent[1]}/cmdline") if parent else None
        return above is not None and above.read_bytes() == Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def whole(path: Path) -> bool:
    """Return whether the files beside a checkpoint, and it itself, are written to their ends."""
    return all(map(zipfile.is_zipfile, path.parent.glob(f"*{path.suffix}")))


def cut_newest(path: Path) -> None:
    """Cut the largest file of a checkpoint in half, as a full disk or a crash does."""
    files = [it for it in path.rglob("*") if it.is_file()] if path.is_dir() else [path]
    largest = max(files, key=lambda it: it.stat().st_size)
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size // 2)


def try_one(trainer: Trainer, scenario: str, environments: Path, template: Path) -> dict[str, Any]:
    trial = Trial(trainer, environments, template)
    found: dict[str, Any] = {"trainer": trainer.name, "scenario": scenario}
    try:
        if scenario == HEALTHY:
            plain = trial.plain()
            found |= {"plain_code": plain.code, "plain_seconds": round(plain.seconds, 1)}
            found["plain_weights"] = trial.weights()
            found["plain_tail"] = plain.output[-300:] if plain.code else ""
            if plain.code:
                found["plain_err"] = (trial.home / "err.log").read_text()[-1500:]
            trial.close()
            trial = Trial(trainer, environments, template)
        if scenario == DRILL:
            drilled = trial.drill()
            shown = "".join(drilled.output.partition("{")[1:])
            return found | {
                "code": drilled.code, "seconds": round(drilled.seconds, 1),
                "said": drilled.said, "drill": json.loads(shown) if shown else {},
                "err": (trial.home / "err.log").read_text()[-3000:] if drilled.code else "",
            }  # fmt: skip
        if scenario in (INIT, INIT_HANG):
            made = trial.init(template.parent / "rocsteady.toml")
            job = trial.folder / "rocsteady.toml"
            found["job"] = job.read_text() if job.exists() else ""
            if made is not None:
                found |= {"init_code": made.code, "init_seconds": round(made.seconds, 1)}
        harm = {INIT: KILL, INIT_HANG: HANG}.get(scenario, scenario)
        ended = trial.supervised(harm=harm, job=harm != scenario)
        report = trial.report()
        found |= {
            "code": ended.code,
            "seconds": round(ended.seconds, 1),
            "attempts": len(report.get("attempts", [])),
            "said": ended.said,
            "weights": trial.weights(),
            "final": trial.final(),
            "left": sorted(
                str(it.relative_to(trial.folder)) for it in trial.folder.glob(trainer.checkpoints)
            ),
            "aside": sorted(
                str(it.relative_to(trial.folder)) for it in trial.folder.rglob(".*.broken")
            ),
            "hung": (trial.home / "hung").exists(),
            "err": "" if ended.code == 0 else (trial.home / "err.log").read_text()[-1500:],
        }
    finally:
        trial.close()
    return found


def make_template(trainer: Trainer, environments: Path) -> Path:
    """Make the project of a trainer once: model, data, scripts."""
    folder = Path(tempfile.mkdtemp(prefix="trainer-template-")) / "project"
    folder.mkdir()
    if (PROJECTS / trainer.project).exists():
        shutil.copytree(PROJECTS / trainer.project, folder, dirs_exist_ok=True)
    programs = environments / trainer.environment / "bin"
    variables = environment(folder, programs)
    if trainer.make:
        script = (PROJECTS / trainer.project / trainer.make).resolve()
        subprocess.run([programs / "python", script], cwd=folder, env=variables, check=True)
    if trainer.prepare:
        subprocess.run(
            trainer.prepare.split(), cwd=folder, env=variables, check=True,
            stdout=subprocess.DEVNULL, executable=str(programs / trainer.prepare.split()[0]),
        )  # fmt: skip
    return folder


def results_in(path: Path | None) -> Iterator[dict[str, Any]]:
    if path is not None and path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, a row for each trainer."""
    yield (
        "| trainer | undisturbed | killed | hung | newest cut | init, killed | init, hung | drill |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for trainer in TRAINERS:
        found = {it["scenario"]: it for it in results if it["trainer"] == trainer.name}
        if found:
            plain = found.get(HEALTHY, {}).get("plain_weights", "")
            cells = [_cell(found[each], plain) if each in found else "-" for each in SCENARIOS]
            yield f"| {trainer.name} | {' | '.join(cells)} |"


def _cell(result: dict[str, Any], plain: str) -> str:
    """Say in a few words how a run ended; ``plain``: the weights of one without rocsteady."""
    if result["scenario"] == DRILL:
        faults = result["drill"].get("faults", [])
        return f"{sum(it['survived'] for it in faults)} of {len(faults)} survived"
    ends = [line for line in result["said"] if re.match(r"rocsteady: done", line)]
    if result["code"] or not ends or not result["final"]:
        return f"no: exit code {result['code']}, {result['attempts']} attempts"
    steps = re.search(r"([\d,]+)(?:/[\d,]+)? steps|step ([\d,]+)", ends[-1])
    counted = (steps[1] or steps[2]) if steps else "?"
    if result["scenario"] in (HANG, INIT_HANG) and not result["hung"]:
        return "nothing hung"
    resumed = "" if result["scenario"] == HEALTHY else "resumed, "
    if resumed and result["attempts"] == 1:
        return "one attempt"
    same = ", same weights" if result["weights"] == plain else ""
    aside = f", {len(result['aside'])} moved aside" if result["aside"] else ""
    return f"{resumed}{counted} steps{same}{aside}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--environments", type=Path, default=Path("trainer-environments"))
    parser.add_argument("--only", default=",".join(SCENARIOS))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then start no more")
    parser.add_argument("--table", action="store_true", help="only show the results as Markdown")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table(list(results_in(args.results)))))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave nothing behind
    began = time.monotonic()
    done = {(it["trainer"], it["scenario"]) for it in results_in(args.results)}
    for trainer in TRAINERS:
        if args.names and trainer.name not in args.names:
            continue
        if time.monotonic() - began > args.seconds:
            break
        make_environment(args.environments / trainer.environment)
        wanted = [each for each in args.only.split(",") if (trainer.name, each) not in done]
        if not wanted:
            continue
        template = make_template(trainer, args.environments)
        for scenario in wanted:
            if time.monotonic() - began > args.seconds:
                break
            found = try_one(trainer, scenario, args.environments, template)
            if args.results is not None:
                with args.results.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            print(json.dumps(found, indent=1), flush=True)
        shutil.rmtree(template.parent)


if __name__ == "__main__":
    main()
