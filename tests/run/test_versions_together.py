"""The command and the library beside torch are of different versions: they train, or say so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import rocsteady_train
from supervised import Project

TRAINS = """
    import torch, rocsteady_train
    from rocsteady_train import Loop
    print("library", rocsteady_train.__version__)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in (loop := Loop(model=model, optimizer=optimizer, loader=loader, epochs=4)):
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def library(folder: Path, version: str) -> Path:
    """Copy the library as another version of it could be."""
    target = folder / version / "rocsteady_train"
    shutil.copytree(Path(rocsteady_train.__file__).parent, target)
    start = target / "__init__.py"
    text = start.read_text().replace(f'"{rocsteady_train.__version__}"', f'"{version}"')
    start.write_text(text)
    link = target / "loop" / "supervisor_link.py"
    wire = target / "inside" / "wire.py"
    if version == "0.0.9":  # tells less, in notes of an older form
        link.write_text(link.read_text().replace("_tell(wire.W_MICRO_BATCH, size)", "pass"))
        wire.write_text(wire.read_text().replace("RESUMES_VERSION = 1", "RESUMES_VERSION = 0"))
    if version == "9.0.0":  # another page, another form of notes, a word that nobody knows
        link.write_text(link.read_text().replace("wire.W_BATCH, batch", "511, batch"))
        changed = wire.read_text().replace("\nVERSION = 1", "\nVERSION = 2")
        wire.write_text(changed.replace("RESUMES_VERSION = 1", "RESUMES_VERSION = 2"))
    return target.parent


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.0.9", rocsteady_train.__version__, "9.0.0"])
def test_an_older_the_same_and_a_newer_library(
    project: Project, torch_python: str, version: str
) -> None:
    project.environment["PYTHONPATH"] = str(library(project.home, version))

    ended = project.run("--", torch_python, project.script(TRAINS), within=120)

    assert ended.code == 0, ended.err
    assert f"library {version}" in ended.out
    (attempt,) = project.story()["attempts"]
    assert attempt["last_step"] == 32
