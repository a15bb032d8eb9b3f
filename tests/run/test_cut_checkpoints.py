"""The newest checkpoint is cut off, and the script would take it: it is moved aside first."""

from __future__ import annotations

import json

import pytest
from supervised import Project

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, re, signal, time
from pathlib import Path
import torch
IMPORTS

PLACE = Path("FOLDER")
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step_of(path):
    return int(re.findall(r"[0-9]+", path.name)[-1])


def newest():
    return max(PLACE.glob("PATTERN"), key=step_of, default=None)


def advance():
    optimizer.zero_grad()
    model(torch.ones(64)).sum().backward()
    optimizer.step()


start = 0
if (path := newest()) is not None:
LOAD
for step in range(start + 1, 41):
    advance()
    time.sleep(0.05)
    if step % 10 == 0:
        PLACE.mkdir(parents=True, exist_ok=True)
SAVE
    if step == 25 and not os.path.exists("killed"):
        open("killed", "w").close()
        cut = newest() / "CUT" if "CUT" else newest()
        os.truncate(cut, cut.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
print("from", start)
"""
ONE_FILE = {
    "LOAD": """
state = torch.load(path)
model.load_state_dict(state["state_dict"])
optimizer.load_state_dict(state["optimizer"])
start = state["step"]
""",
    "SAVE": """
state = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
torch.save(state, PLACE / f"NAME")
""",
}
TWO_FILES = {
    "LOAD": """
model.load_state_dict(torch.load(path / "weights.pt"))
optimizer.load_state_dict(torch.load(path / "optimizer.pt"))
start = step_of(path)
""",
    "SAVE": """
(PLACE / f"NAME").mkdir()
torch.save(model.state_dict(), PLACE / f"NAME" / "weights.pt")
torch.save(optimizer.state_dict(), PLACE / f"NAME" / "optimizer.pt")
""",
}
HUGGING_FACE = {
    "LOAD": """
model.load_state_dict(torch.load(path / "pytorch_model.bin"))
optimizer.load_state_dict(torch.load(path / "optimizer.pt"))
start = json.loads((path / "trainer_state.json").read_text())["global_step"]
""",
    "SAVE": """
(PLACE / f"NAME").mkdir()
torch.save(model.state_dict(), PLACE / f"NAME" / "pytorch_model.bin")
torch.save(optimizer.state_dict(), PLACE / f"NAME" / "optimizer.pt")
(PLACE / f"NAME" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
""",
}
SAFETENSORS = {
    "IMPORTS": "from safetensors.torch import load_file, save_file",
    "LOAD": """
model.load_state_dict(load_file(path / "model.safetensors"))
optimizer.load_state_dict(torch.load(path / "optimizer.pt"))
start = step_of(path)
""",
    "SAVE": """
(PLACE / f"NAME").mkdir()
save_file(model.state_dict(), PLACE / f"NAME" / "model.safetensors")
torch.save(optimizer.state_dict(), PLACE / f"NAME" / "optimizer.pt")
""",
}
DCP = {
    "IMPORTS": "import torch.distributed.checkpoint as dcp",
    "LOAD": """
advance()  # so that there is state to load into
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
dcp.load(state, checkpoint_id=path, no_dist=True)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
start = state["step"]
""",
    "SAVE": """
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
dcp.save(state, checkpoint_id=PLACE / f"NAME", no_dist=True)
""",
}
# As much of the format as the script needs; the package is not installed beside torch here.
STAND_IN = """
import json, struct
import torch

def save_file(tensors, path):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().numpy().tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

def load_file(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    data = content[8 + length:]
    return {
        name: torch.frombuffer(bytearray(data[slice(*each["data_offsets"])]), dtype=torch.float32)
        .reshape(each["shape"])
        for name, each in json.loads(content[8:8 + length]).items()
    }
"""
LIGHTNING = {
    **ONE_FILE,
    "FOLDER": "lightning_logs/version_0/checkpoints",
    "PATTERN": "*.ckpt",
    "NAME": "epoch={step // 10 - 1}-step={step}.ckpt",
}
FORMATS = {
    "torch": {**ONE_FILE, "FOLDER": "out", "PATTERN": "ckpt-*.pt", "NAME": "ckpt-{step}.pt"},
    "lightning": LIGHTNING,
    "safetensors": {**SAFETENSORS, "PATTERN": "step_*", "NAME": "step_{step}"},
    "hugging-face-state": {**HUGGING_FACE, "PATTERN": "checkpoint-*", "NAME": "checkpoint-{step}"},
    "hugging-face-model": {**HUGGING_FACE, "PATTERN": "checkpoint-*", "NAME": "checkpoint-{step}"},
    "dcp": {**DCP, "PATTERN": "step_*", "NAME": "step_{step}"},
    "step-folders": {**TWO_FILES, "PATTERN": "step-*", "NAME": "step-{step:06d}"},
}
CUT = {
    "safetensors": "model.safetensors",
    "hugging-face-state": "trainer_state.json",
    "hugging-face-model": "pytorch_model.bin",
    "dcp": "__0_0.distcp",
    "step-folders": "optimizer.pt",
}


def picks_newest(project: Project, name: str) -> str:
    """Write a script that goes on from its newest checkpoint, of a format."""
    text, parts = SCRIPT, FORMATS[name]
    for key in ("LOAD", "SAVE"):
        indent = "    " * (1 + (key == "SAVE"))
        lines = [f"{indent}{line}" for line in parts[key].strip().splitlines()]
        text = text.replace(f"\n{key}\n", "\n" + "\n".join(lines) + "\n")
    for key in ("IMPORTS", "FOLDER", "PATTERN", "NAME"):
        text = text.replace(key, parts.get(key, "out" if key == "FOLDER" else ""))
    (project.folder / "safetensors").mkdir()
    (project.folder / "safetensors/torch.py").write_text(STAND_IN)

    return project.script(text.replace("CUT", CUT.get(name, "")))


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.ci if each == "dcp" else ()) for each in FORMATS],
)
def test_a_script_that_picks_its_newest_checkpoint_does_not_get_one_that_is_cut_off(
    project: Project, torch_python: str, name: str
) -> None:
    script = picks_newest(project, name)
    ended = project.run("--", torch_python, script, within=280)

    assert ended.code == 0, ended.err
    assert "from 10" in ended.out, ended.err
    found = project.folder.rglob(".*.broken")
    (broken,) = (path for path in found if ".rocsteady" not in path.parts)
    assert "20" in broken.name
    assert any(f"moved to {broken.relative_to(project.folder)}" in line for line in ended.said)


def test_a_script_that_ignores_the_checkpoint_that_it_is_told(
    project: Project, torch_python: str
) -> None:
    command = json.dumps([torch_python, picks_newest(project, "torch")])
    (project.folder / "rocsteady.toml").write_text(
        f"""
command = {command}
[resume]
arguments = ["--resume", "{{checkpoint}}"]
checkpoints = ["out/ckpt-*.pt"]
"""
    )

    ended = project.run(within=280)

    assert ended.code == 0, ended.err
    assert "from 10" in ended.out, ended.err
    assert (project.folder / "out/.ckpt-20.pt.broken").exists()
    assert any("moved to out/.ckpt-20.pt.broken" in line for line in ended.said)
