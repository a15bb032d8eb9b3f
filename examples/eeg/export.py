"""Export both models by torch.export, and pack submission.zip: python export.py.

What was written is loaded again and must give the same answers; latency is measured of both.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from evaluate import load, median_latency
from signals import RATE, SAMPLES

HERE = Path(__file__).parent
ASK = (
    "import torch; from submission import Submission;"
    f"made = Submission({RATE}, 'cpu'); window = torch.load('window.pt', weights_only=True);"
    "made = made.get_model_challenge_1(), made.get_model_challenge_2();"
    "torch.save([model(window).detach() for model in made], 'answers.pt')"
)


def compare(what, found, expected):
    difference = (found - expected).abs().max().item()
    print(f"{what}: outputs differ by at most {difference:.1e}")
    if difference > 1e-4:
        raise SystemExit("what was exported gives other answers")


def pack(output, models, metadata, windows):
    """Write submission.zip, and ask it in a process and a folder that have nothing else."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file in ("submission.py", "model.py"):
            shutil.copy(HERE / file, place)
        about = {key: metadata[key] for key in ("channels", "arguments")}
        (place / "metadata.json").write_text(json.dumps(about))
        for phase, model in models.items():
            torch.save(model.state_dict(), place / f"weights_{phase}.pt")
        shutil.make_archive(str(output / "submission"), "zip", place)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.unpack_archive(output / "submission.zip", place)
        torch.save(windows, place / "window.pt")
        subprocess.run([sys.executable, "-c", ASK], cwd=place, check=True)  # noqa: S603 - ours
        answers = torch.load(place / "answers.pt", weights_only=True)
    expected = models["challenge_1"](windows), models["challenge_2"](windows)[:, 3:]
    for number, pair in enumerate(zip(answers, expected, strict=True), 1):
        compare(f"{output / 'submission.zip'}, challenge {number}", *pair)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    output = parser.parse_args().output
    models, args, metadata = load(output)
    torch.set_num_threads(int(args.threads))
    windows = 20 * torch.randn(5, metadata["channels"], SAMPLES)
    count = torch.export.Dim("windows", min=1, max=4096)
    for phase, model in models.items():
        example = (20 * torch.randn(8, metadata["channels"], SAMPLES),)
        program = torch.export.export(model, example, dynamic_shapes=({0: count},))
        path = output / f"{phase}.pt2"
        torch.export.save(program, path)
        exported = torch.export.load(path).module()
        compare(path, exported(windows), model(windows))
        times = [median_latency(each, windows[0], "cpu") for each in (model, exported)]
        print(f"{path}: {times[1]:.2f} ms a window, {times[0]:.2f} ms before")
    pack(output, models, metadata, windows)


if __name__ == "__main__":
    main()
