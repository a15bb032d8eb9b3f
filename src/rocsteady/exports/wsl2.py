"""A guide to training under WSL2: what to type in Windows and in Linux, for this GPU."""

from __future__ import annotations

import re
import shlex

from rocsteady.exports.export import Export, slug
from rocsteady.exports.file_header import plain, remarks
from rocsteady.exports.shell import ENVIRONMENT, environment, install, run_line

ROCM = "7.14.1"
TORCH = "2.12.0"  # AMD's page names it for this ROCm and all of these GPUs
BRIDGE = "1.2.1"  # of librocdxg, which its readme pairs with ROCm 7.14
INDEX = "https://repo.amd.com/rocm/whl-multi-arch/"
PACKAGE = f"rocdxg-roct_{BRIDGE}_amd64.deb"
RELEASE = f"https://github.com/ROCm/librocdxg/releases/download/v{BRIDGE}/{PACKAGE}"
FACTS = (
    "list of GPUs and versions from the readme of ROCm/librocdxg (read 2026-08-21), wheels from"
    " AMD's page on installing PyTorch for ROCm 7.14.1 (read 2026-11-15). They may have moved on."
)
# Products in AMD's list for WSL, by their code.
LISTED = {
    "gfx1100": ("RX 7900 XTX", "RX 7900 XT", "RX 7900 GRE", "PRO W7900", "PRO W7800"),
    "gfx1101": ("RX 7800 XT", "PRO W7700"),
    "gfx1150": ("Ryzen AI 9 HX 375", "Ryzen AI 9 HX 370", "Ryzen AI 9 365"),
    "gfx1151": ("Ryzen AI Max+ 395", "Ryzen AI Max 390", "Ryzen AI Max 385"),
    "gfx1200": ("RX 9060", "RX 9060 XT"),
    "gfx1201": ("RX 9070", "RX 9070 XT", "RX 9070 GRE", "AI PRO R9700"),
}
REPORTED = {
    "gfx1101": " Users report an RX 7800 XT that is not found: microsoft/WSL#40464, librocdxg#34.",
    "gfx1200": " Users report bugs with this GPU: librocdxg#22.",
}
NOT_LISTED = """\
AMD does not list {gfx} for WSL. Its runtime offers GPUs there by a list, so this option is not
expected to work, and no steps are given. Linux on the machine itself, the CPU and a rented GPU are
the options that are left.
"""
STEPS = f"""\
## 1. Windows

Install the newest driver for the GPU from amd.com/support. The GPU reaches Linux through it; no
driver is installed in Linux. Then, in PowerShell as administrator:

```powershell
wsl --update
wsl --install -d Ubuntu-24.04
wsl --shutdown
wsl -d Ubuntu-24.04
```

The second line makes a user of Linux and asks for a password; the last one opens Linux. Linux gets
half of the memory, until `memory=` in `.wslconfig` says otherwise.

## 2. The bridge to the GPU

In Linux. The first line must name the device; if it does not, the driver or WSL is too old. The
last one must name the library.

```bash
ls -l /dev/dxg
sudo apt-get update
sudo apt-get install -y ca-certificates python3-venv wget
wget {RELEASE}
sudo apt-get install -y ./{PACKAGE}
sudo ldconfig
ldconfig -p | grep librocdxg
```

## 3. The project

On the disk of Linux: files below `/mnt/c` are slow, and the journal cannot be kept there.

{{project}}

## 4. torch and the rest

ROCm {ROCM} comes with this torch, {TORCH}{{here}}. From ROCm 7.13 on, WSL needs no variable.

{{packages}}

## 5. Check

The first line must say True and name the GPU. If it does not, the doctor says what is wrong. The
probe tries what training needs, each in a process that may hang.

```bash
python3 -c 'import torch; print(torch.cuda.is_available(), torch.cuda.get_device_name(0))'
rocsteady doctor
rocsteady probe
```

## 6. Train

{{train}}
"""


def guide(export: Export) -> str:
    """Write the guide, or say that AMD does not list this GPU."""
    gpu = export.gpu or "this GPU"
    head = remarks(export, f"Training under WSL2 with {gpu} ({export.gfx or 'not known'}).", FACTS)
    top = [f"# {slug(export.name)} in WSL2", *map(_prose, head)]
    if export.gfx not in LISTED:
        return "\n\n".join([*top, NOT_LISTED.format(gfx=_prose(export.gfx) or "it")])
    return "\n\n".join([*top, _prose(_listed(export.gfx, gpu)), _steps(export)])


def _listed(gfx: str, gpu: str) -> str:
    products = LISTED[gfx]
    if any(product.lower() in gpu.lower() for product in products):
        named = "AMD lists it for WSL, on Windows 11 with Ubuntu 24.04."
    else:
        named = (
            f"AMD lists {gfx} for WSL as {', '.join(products)}. It does not name {gpu}, which has"
            " the same code and may work."
        )
    return named + REPORTED.get(gfx, "")


def _steps(export: Export) -> str:
    there = slug(export.name)
    torch = shlex.quote(f"torch[device-{export.gfx}]=={TORCH}+rocm{ROCM}")
    other = export.torch and not export.torch.startswith(TORCH)
    return STEPS.format(
        project=_code(
            f"mkdir -p ~/{there}", f"cp -r {_from_windows(export)} ~/{there}/", f"cd ~/{there}"
        ),
        here=f" (here it is {_prose(export.torch)})" if other else "",
        packages=_code(
            f"python3 -m venv ~/{ENVIRONMENT}",
            f". ~/{ENVIRONMENT}/bin/activate",
            f"python3 -m pip install --index-url {INDEX} {torch}",
            *install(export),
        ),
        train=_code(*environment(export), run_line(export)),
    )


def _from_windows(export: Export) -> str:
    """Name the project's folder as Linux sees it."""
    if not export.folder:
        return "/mnt/c/path/to/the/project/."
    return f'"$(wslpath -u {shlex.quote(export.folder)})"/.'


def _prose(text: str) -> str:
    """Keep names and paths on one line, and from being taken for markup."""
    return re.sub(r"([*_<>`\[\]])", r"\\\1", plain(text))


def _code(*lines: str) -> str:
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}bash\n{text}\n{fence}"
