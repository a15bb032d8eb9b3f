"""Machines of 2026: what reports of that year describe, put together from their outputs.

None of these was recorded whole: kernels, firmware, variables and builds are those that reports
print, and what no report says is ours, as in the other files.
"""

from __future__ import annotations

import base64

from retyped import chips
from retyped.chips import GEN5, MIB, Chip
from retyped.elsewhere import CONTROL, ROCM_LIBRARIES, add_adapter, windows, wsl
from retyped.hardware import Card, Slot, add_cpu_node, add_device_nodes, add_gpu_node, plug
from retyped.radeon import CHIPSET, GIB_32, INSIDE, MAIN, REST, desktop, two_rx7900xt
from retyped.recording import Recording
from retyped.systems import System, half_of_memory, load_driver, start, ubuntu
from retyped.wheels import add_venv

OURS = f"Put together by us from what the threads named print; nothing was recorded whole. {REST}"
GIB_128 = 131_072_000
FEDORA = System("fedora", "44", "Fedora Linux 44", "7.0.12-200.fc44.x86_64", render=105)
DEBIAN = System("debian", "13", "Debian GNU/Linux 13 (trixie)", "6.12.100+deb13-amd64", render=992)


def processor(  # noqa: PLR0913 - a machine has this many properties of its own
    name: str,
    note: str,
    chip: Chip,
    system: System,
    *,
    boot: int,
    memory: int = GIB_32,
    gtt: int | None = None,
    mes: int | None = None,
) -> Recording:
    """Return a machine whose only GPU is in its processor."""
    machine = start(name, f"{note} {OURS}", system, boot=boot, memory=memory)
    card = Card(chip, node=1, location=0xC500, minor=128, serial=0, gpu_id=20001)
    load_driver(machine)
    path = plug(machine, card, INSIDE, gtt=gtt or half_of_memory(memory))
    if mes is not None:
        machine.text(f"{path}/fw_version/mes_fw_version", f"0x{mes:08x}")
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=system.render)
    return machine


def radeon_vii() -> Recording:
    """One Vega with a wheel that was compiled for it and has no matrix kernels for it."""
    note = f"Scenario: ROCm/legacy-rocm-build#4625 and unslothai/unsloth#7354 (gfx906). {OURS}"
    machine = desktop(
        "radeon-vii", note, chips.RADEON_VII, ubuntu("24.04", "6.8.0-85-generic"), boot=51
    )
    add_venv(machine, "2.9.1+rocm6.4", python="3.12.3")
    del machine.files[machine.folder]
    machine.disk(machine.folder, total=500 * 1000**3, free=6 * 1000**3, filesystem="ext4")
    return machine


def vega_apu() -> Recording:
    """One Vega of a Ryzen processor that passes for a card."""
    note = "Scenario: ROCm/rocBLAS#1398 (gfx90c, HSA_OVERRIDE_GFX_VERSION=9.0.0)."
    system = ubuntu("22.04", "6.8.0-85-generic")
    machine = processor("vega-apu", note, chips.CEZANNE, system, boot=52)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "9.0.0"
    add_venv(machine, "2.5.1+rocm6.2", kernels=True)
    return machine


def steam_deck() -> Recording:
    """One handheld with an RDNA2 chip that no wheel of pytorch.org knows."""
    note = "Scenario: gfx1033 with a wheel for ROCm 7.1 (unslothai/unsloth#6124 has its family)."
    machine = processor(
        "steam-deck", note, chips.VAN_GOGH, ubuntu("24.04", "6.14.0-37-generic"), boot=53
    )
    add_venv(machine, "2.10.0+rocm7.1", python="3.12.3", kernels=True)
    return machine


def radeon_780m() -> Recording:
    """One GPU of a laptop with AMD's wheel of ROCm 10, on which others compute already."""
    note = "Scenario: ROCm/TheRock#6819 and ROCm/legacy-rocm-build#6018 (780M, gfx1103)."
    system = ubuntu("24.04", "6.19.0-12-generic")
    machine = processor("radeon-780m", note, chips.PHOENIX, system, boot=54)
    machine.names("/sys/class/kfd/kfd/proc", ["2101", "2102", "2103", "2104"])
    add_venv(machine, "2.12.0+rocm10.0.0", python="3.12.3", more="amd_torch_device_gfx1103-2.12.0")
    return machine


def radeon_890m() -> Recording:
    """Strix Point with the firmware that was taken back and a kernel that faults."""
    note = "Scenario: ROCm/amdgpu#213 (gfx1150, kernel 6.17) and ROCm/legacy-rocm-build#5616 (MES)."
    machine = processor(
        "radeon-890m",
        note,
        chips.STRIX_POINT,
        ubuntu("24.04", "6.17.0-20-generic"),
        boot=55,
        mes=0x83,
    )
    add_venv(machine, "2.12.0+rocm7.14.0", python="3.12.3", more="amd_torch_device_gfx1150-2.12.0")
    return machine


def strix_halo_before() -> Recording:
    """Strix Halo with most of its memory set aside, an old kernel and the broken firmware."""
    note = (
        "Scenario: ROCm/legacy-rocm-build#5724 and #5991; 96 GiB set aside as in threads of 2025."
    )
    chip = chips.replace_memory(chips.STRIX_HALO, vram=98304 * MIB)
    machine = processor(
        "strix-halo-before",
        note,
        chip,
        ubuntu("24.04", "6.14.0-37-generic"),
        boot=56,
        memory=32_768_000,
        mes=0x83,
    )
    add_venv(machine, "2.10.0+rocm7.1", python="3.12.3", kernels=True)
    return machine


def strix_halo_after() -> Recording:
    """Strix Halo with a repaired kernel and arguments that are left from before."""
    note = "Scenario: ROCm/legacy-rocm-build#5991, ROCm/TheRock#2991 and #7895 (no libnuma.so)."
    words = "quiet splash amdgpu.cwsr_enable=0 amdgpu.gttsize=98304 ttm.pages_limit=27648000"
    machine = processor(
        "strix-halo-after",
        note,
        chips.STRIX_HALO,
        ubuntu("26.04", "6.19.4-14-generic", cmdline=words),
        boot=57,
        memory=GIB_128,
        gtt=27_648_000 * 4096,
        mes=0x80,
    )
    add_venv(machine, "2.13.0+rocm7.2", python="3.13.7", kernels=True)
    return machine


def strix_halo_rocm_10() -> Recording:
    """Strix Halo with a current kernel and AMD's wheels of ROCm 10."""
    machine = processor(
        "strix-halo-rocm-10",
        "Scenario: ROCm/MIOpen#3964 (Radeon 8060S, kernel 7.1.9, torch 2.13 for ROCm 10.0).",
        chips.STRIX_HALO,
        ubuntu("26.04", "7.1.9-7-generic"),
        boot=71,
        memory=65_541_856,
        mes=0x80,
    )
    device = "amd_torch_device_gfx1151-2.13.0"
    add_venv(machine, "2.13.0+rocm10.0.0", python="3.13.7", more=device)
    return machine


def rx7900xt_pair_current() -> Recording:
    """Two RDNA3 cards with a current build and nothing set."""
    note = f"Scenario: ROCm/legacy-rocm-build#6565 (two gfx1100, ROCm 7.2.3). {OURS}"
    machine = two_rx7900xt("rx7900xt-pair-current", note, boot=72, rocm="7.2.3")
    add_venv(machine, "2.12.0+rocm7.2", folder="/opt/venv")
    return machine


def rx9060xt() -> Recording:
    """One RDNA4 card on the kernel that stalls copies."""
    note = (
        "Scenario: ROCm/legacy-rocm-build#6358 (RX 9060 XT, Fedora, kernel 7.0.12) and #6647 "
        f"(torch 2.10 for ROCm 7.14). MIOPEN_FIND_MODE is ours. {OURS}"
    )
    machine = desktop("rx9060xt", note, chips.RX_9060_XT, FEDORA, boot=58)
    machine.environment["MIOPEN_FIND_MODE"] = "FAST"
    add_venv(machine, "2.10.0+rocm7.14.0", python="3.13.7", more="amd_torch_device_gfx1200-2.10.0")
    return machine


def r9700_pair() -> Recording:
    """Two RDNA4 cards on Debian's kernel, with memory settings that hang and peers kept apart."""
    note = (
        "Scenario: pytorch/pytorch#192259 (two R9700, Debian 13, torch 2.12 for ROCm 7.14, "
        "expandable_segments), ROCm/legacy-rocm-build#6603 (max_split_size_mb) and "
        f"ROCm/ROCR-Runtime#355 (256 MiB reachable). ACS and NUMA balancing are ours. {OURS}"
    )
    machine = start("r9700-pair", note, DEBIAN, boot=59, memory=65_541_856)
    load_driver(machine)
    add_cpu_node(machine, 0, 24)
    machine.text("/proc/sys/kernel/numa_balancing", "1")
    for number, (slot, location) in enumerate(((MAIN, 0x0300), (CHIPSET, 0x0900))):
        card = Card(
            chips.R9700,
            node=1 + number,
            location=location,
            minor=128 + number,
            serial=1 + number,
            gpu_id=20001 + number,
        )
        plug(machine, card, Slot(slot.root, slot.board, speed=GEN5), gtt=half_of_memory(65_541_856))
        add_gpu_node(machine, card)
        redirect_peers(machine, f"/sys/devices/{slot.root}/{slot.board[0].address}")
    add_device_nodes(machine, [128, 129], render=DEBIAN.render)
    machine.environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True,max_split_size_mb:128"
    add_venv(machine, "2.12.0+rocm7.14.0", python="3.13.5", more="amd_torch_device_gfx1201-2.12.0")
    return machine


def redirect_peers(machine: Recording, bridge: str) -> None:
    """Give a bridge the ACS capability with both redirects on, as root would read it."""
    capability = bytes.fromhex("0d0001000f000c00") + bytes(0x1000 - 0x108)
    machine.files[f"{bridge}/config"] = {
        "pieces": {str(0x100): base64.b64encode(capability).decode()}
    }


def r9700_without_peers() -> Recording:
    """Two such cards, peer-to-peer switched off."""
    note = f"As r9700-pair, with NCCL_P2P_DISABLE=1 (ROCm/vllm#390) and kernel 6.19. {OURS}"
    system = System(
        "debian", "13", "Debian GNU/Linux 13 (trixie)", "6.19.8+deb13-amd64", render=992
    )
    machine = start("r9700-without-peers", note, system, boot=60, memory=65_541_856)
    load_driver(machine)
    add_cpu_node(machine, 0, 24)
    machine.text("/proc/sys/kernel/numa_balancing", "0")
    for number, (slot, location) in enumerate(((MAIN, 0x0300), (CHIPSET, 0x0900))):
        chip = chips.replace_memory(chips.R9700, reachable=chips.R9700.vram)
        card = Card(chip, 1 + number, location, 128 + number, 1 + number, 20001 + number)
        plug(machine, card, Slot(slot.root, slot.board, speed=GEN5), gtt=half_of_memory(65_541_856))
        add_gpu_node(machine, card)
    add_device_nodes(machine, [128, 129], render=992)
    machine.environment |= {
        "HSA_ENABLE_IPC_MODE_LEGACY": "1",
        "NCCL_P2P_DISABLE": "1",
        "TORCH_BLAS_PREFER_HIPBLASLT": "0",
    }
    add_venv(machine, "2.14.0+rocm7.14", python="3.13.5", kernels=True)
    machine.names("/usr/lib/x86_64-linux-gnu", ["libnuma.so", "libnuma.so.1"])
    return machine


def mi355x() -> Recording:
    """One CDNA4 card, everything in order."""
    note = f"Scenario: ROCm/TheRock#5355 (gfx950). {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet iommu=pt")
    machine = desktop("mi355x", note, chips.MI355X, system, boot=61)
    machine.text("/sys/module/amdgpu/version", "6.16.13")
    add_venv(machine, "2.14.0+rocm7.14", python="3.12.3", kernels=True)
    machine.names("/usr/lib/x86_64-linux-gnu", ["libnuma.so", "libnuma.so.1"])
    return machine


def mi210_current() -> Recording:
    """One gfx90a with the wheel whose kernels are missing."""
    note = f"Scenario: ROCm/TheRock#5976 and ROCm/pytorch#3518 (gfx90a, ROCm 7.14). {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet iommu=pt")
    machine = desktop("mi210-current", note, chips.MI210, system, boot=62)
    add_venv(machine, "2.12.0+rocm7.14.0", python="3.13.5", more="amd_torch_device_gfx90a-2.12.0")
    return machine


def windows_rocm_10() -> Recording:
    """Two RX 9070 XT under Windows with ROCm 10."""
    note = (
        f"Scenario: ROCm/TheRock#8095 (RX 9070 XT, Windows); ROCm 10 and the pair are ours. {OURS}"
    )
    more = "torch_directml-0.2.5.dev240914"
    machine = windows("windows-rocm-10", note, "2.12.0+rocm10.0.0", {}, more=more)
    add_adapter(machine, CONTROL.replace("0000", "0001"))
    return machine


def wsl2_rocm_10() -> Recording:
    """WSL2 with the bridge and ROCm 10."""
    note = f"Scenario: unslothai/unsloth#9729 (WSL2, librocdxg); ROCm 10 is ours. {OURS}"
    return wsl(
        "wsl2-rocm-10",
        note,
        boot=63,
        libraries=[*ROCM_LIBRARIES, "librocdxg.so"],
        torch="2.12.0+rocm10.0.0",
    )


def container_small_shm() -> Recording:
    """One container with Docker's shared memory, a small limit and old packages, on an MI300X."""
    note = f"Scenario: pytorch/pytorch#5040 (64 MiB of shared memory), amd/playbooks#250. {OURS}"
    machine = start(
        "container-small-shm",
        note,
        ubuntu("24.04", "6.8.0-85-generic", cmdline="quiet iommu=pt"),
        boot=64,
        memory=65_541_856,
        container=True,
        limit=8 * 1024**3,
        shm=64 * MIB,
    )
    card = Card(chips.MI300X, node=1, location=0x0500, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(65_541_856))
    add_cpu_node(machine, 0, 96)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=992)
    add_venv(
        machine,
        "2.12.0+rocm7.14.0",
        python="3.12.3",
        folder="/opt/venv",
        more="amd_torch_device_gfx942-2.12.0 bitsandbytes-0.48.2 flash_attn-2.8.3",
    )
    return machine


def rocm_wheel_without_gpu() -> Recording:
    """One machine without an AMD GPU and with a ROCm build."""
    note = f"Scenario: pytorch/pytorch#189194 (2.13 for ROCm on a machine without a GPU). {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = start("rocm-wheel-no-gpu", note, system, boot=65, memory=GIB_32)
    add_venv(machine, "2.13.0+rocm7.2", python="3.12.3")
    machine.names("/usr/lib/x86_64-linux-gnu", ["libnuma.so"])
    return machine


SWITCHES = {
    "AMD_LOG_LEVEL": "4",
    "HIP_FORCE_DEV_KERNARG": "1",
    "HSA_CU_MASK": "0:0-15",
    "HSA_ENABLE_INTERRUPT": "0",
    "HSA_ENABLE_SDMA": "0",
    "MIOPEN_FIND_ENFORCE": "3",
    "PYTORCH_ROCM_ARCH": "gfx1100",
    "PYTORCH_TUNABLEOP_ENABLED": "1",
    "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL": "1",
    "TORCH_ROCM_FA_PREFER_CK": "1",
}


def rx7900xtx_switches() -> Recording:
    """One card with every switch that guides recommend, and packages that do not fit."""
    note = f"Variables: those of guides of 2025 and 2026, together by us; GPU as rx7900xtx. {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet splash iommu=pt")
    machine = desktop("rx7900xtx-switches", note, chips.RX_7900_XTX, system, boot=66)
    machine.environment |= SWITCHES
    add_venv(
        machine,
        "2.9.0+rocm6.4",
        python="3.12.3",
        kernels=True,
        more="flash_attn-2.8.3 triton-3.5.0",
    )
    return machine


def rx7600_old_torch() -> Recording:
    """One small card with a torch that ignores the choice of a BLAS library."""
    note = (
        f"Scenario: ROCm/TheRock#2847 (RX 7600) and unslothai/unsloth#10273 (bitsandbytes). {OURS}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = desktop("rx7600-old-torch", note, chips.RX_7600, system, boot=67)
    machine.environment["TORCH_BLAS_PREFER_HIPBLASLT"] = "0"
    add_venv(machine, "2.7.1+rocm6.3", python="3.12.3", kernels=True, more="bitsandbytes-0.50.2")
    return machine


def rx7600_override() -> Recording:
    """One small card that is made to pass for a larger one, with a wheel that has its own code."""
    note = f"Scenario: TNTran92/bitsandbytes tells owners of an RX 7600 to set 11.0.0. {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = desktop("rx7600-override", note, chips.RX_7600, system, boot=73)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "11.0.0"
    add_venv(machine, "2.10.0+rocm7.1", python="3.12.3", kernels=True)
    return machine


def rx6700xt_leftovers() -> Recording:
    """One card with AMD's wheel for it, and the variables of the wheel before."""
    note = (
        f"GPU: as rx6700xt. The variables are ours: those that guides for older ROCm give. {OURS}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = desktop("rx6700xt-leftovers", note, chips.RX_6700_XT, system, boot=74)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0"
    machine.environment["RCCL_MSCCL_ENABLE"] = "0"
    machine.environment["HSA_ENABLE_DXG_DETECTION"] = "1"
    add_venv(machine, "2.12.0+rocm10.0.0", python="3.12.3", more="amd_torch_device_gfx1031-2.12.0")
    return machine


def rx9070xt_old_rocm() -> Recording:
    """One RDNA4 card with a torch that was built before AMD supported it."""
    note = f"Scenario: ROCm/legacy-rocm-build#4443 (RX 9070 XT with ROCm 6.3). {OURS}"
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = desktop("rx9070xt-old-rocm", note, chips.RX_9070_XT, system, boot=75)
    machine.environment["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:128"
    machine.environment["CUDA_LAUNCH_BLOCKING"] = "1"
    add_venv(machine, "2.7.1+rocm6.3", python="3.12.3", kernels=True)
    return machine


def vega_apu_plain() -> Recording:
    """One Vega of a Ryzen processor with a current wheel and nothing set."""
    note = "GPU: as vega-apu."
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = processor("vega-apu-plain", note, chips.CEZANNE, system, boot=76)
    add_venv(machine, "2.13.0+rocm7.2", python="3.12.3", kernels=True)
    return machine


MACHINES = (
    radeon_vii,
    vega_apu,
    steam_deck,
    radeon_780m,
    radeon_890m,
    strix_halo_before,
    strix_halo_after,
    strix_halo_rocm_10,
    rx7900xt_pair_current,
    rx9060xt,
    r9700_pair,
    r9700_without_peers,
    mi355x,
    mi210_current,
    windows_rocm_10,
    wsl2_rocm_10,
    container_small_shm,
    rocm_wheel_without_gpu,
    rx7900xtx_switches,
    rx7600_old_torch,
    rx7600_override,
    rx6700xt_leftovers,
    rx9070xt_old_rocm,
    vega_apu_plain,
)
