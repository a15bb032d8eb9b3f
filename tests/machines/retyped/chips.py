"""The GPUs: what KFD, PCI and the driver say of each, as far as it was recorded.

``kfd`` holds lines of the topology node's ``properties``. MI210, MI300X in CPX mode and Vega 10 are
whole (ROCm/k8s-device-plugin, testdata); the RX 7900 XTX is nearly so (tinygrad's mocked GPU). Of
the others only what names the chip was recorded, so only that is here; 168 SIMDs of the RX 7900 XT
and those of the RX 6900 XT, RX 7800 XT and gfx1036 follow from their compute units.
Bus widths and memory clocks are ours, except the Vega's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB = 1024 * 1024

RADEON_BRIDGES = (0x1478, 0x1479)  # what a Radeon card brings along: upstream, downstream
VEGA_BRIDGES = (0x1470, 0x1471)

VGA = 0x030000
DISPLAY = 0x038000
ACCELERATOR = 0x120000

GEN3 = "8.0 GT/s PCIe"
GEN4 = "16.0 GT/s PCIe"
GEN5 = "32.0 GT/s PCIe"


@dataclass(frozen=True)
class Chip:
    """One kind of GPU."""

    name: str
    device: int
    revision: int
    vram: int  # bytes, as the driver says
    kfd: str  # key value key value ...
    width: int  # bits of the memory bus
    clock: int  # MHz of the memory
    bridges: tuple[int, int] | None = RADEON_BRIDGES
    pci_class: int = VGA
    lanes: int = 16
    speed: str = GEN4
    heap: int = 1  # 1: the CPU reaches all of the memory; 2: not so
    bank: int | None = None  # bytes that KFD offers, where that is not the vram
    reachable: int | None = None  # bytes of it that other devices reach, where that was recorded

    def properties(self, **here: int) -> dict[str, int]:
        """Return the properties of a node; ``here`` has those that differ from card to card."""
        words = self.kfd.split()
        table = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return {**table, "vendor_id": 0x1002, "device_id": self.device, **here}


RDNA = (
    "cpu_cores_count 0 mem_banks_count 1 wave_front_size 32 simd_per_cu 2 local_mem_size 0 "
    "num_xcc 1 "
)

RX_580 = Chip(
    name="AMD Radeon RX 580",
    device=0x67DF,
    revision=0xE7,
    vram=8192 * MIB,
    kfd="",
    width=256,
    clock=2000,
    bridges=None,
    speed=GEN3,
)
RX_5700_XT = Chip(
    name="AMD Radeon RX 5700 XT",
    device=0x731F,
    revision=0xC1,
    vram=8176 * MIB,
    kfd=RDNA + "simd_count 80 gfx_target_version 100100 max_engine_clk_fcompute 2100",
    width=256,
    clock=875,
)
RX_6700_XT = Chip(
    name="AMD Radeon RX 6700 XT",
    device=0x73DF,
    revision=0xC1,
    vram=12868124672,
    kfd=RDNA + "simd_count 80 gfx_target_version 100301 max_engine_clk_fcompute 2855",
    width=192,
    clock=1000,
    heap=2,
)
RX_6900_XT = Chip(
    name="AMD Radeon RX 6900 XT",
    device=0x73BF,
    revision=0xC0,
    vram=17163091968,
    kfd=RDNA + "simd_count 160 gfx_target_version 100300 max_engine_clk_fcompute 2660",
    width=256,
    clock=1000,
)
RAPHAEL = Chip(
    name="AMD Radeon Graphics",
    device=0x164E,
    revision=0xC1,
    vram=64 * MIB,
    kfd=RDNA + "simd_count 4 gfx_target_version 100306 max_engine_clk_fcompute 2200",
    width=128,
    clock=2400,
    bridges=None,
    heap=2,
    bank=33_557_430_272,
)
RX_7900_XTX = Chip(
    name="AMD Radeon RX 7900 XTX",
    device=0x744C,
    revision=0xC8,
    vram=24560 * MIB,
    kfd=RDNA
    + "simd_count 192 caches_count 206 io_links_count 1 max_waves_per_simd 16 lds_size_in_kb 64 "
    "array_count 12 simd_arrays_per_engine 2 cu_per_simd_array 8 gfx_target_version 110000 "
    "num_sdma_engines 2 num_sdma_xgmi_engines 0 num_cp_queues 8 max_engine_clk_fcompute 2482 "
    "fw_version 2140 capability 671588992 sdma_fw_version 20",
    width=384,
    clock=1249,
)
RX_7900_XT = Chip(
    name="AMD Radeon RX 7900 XT",
    device=0x744C,
    revision=0xCC,
    vram=21458059264,
    kfd=RDNA + "simd_count 168 gfx_target_version 110000",
    width=320,
    clock=1249,
)
RX_7800_XT = Chip(
    name="AMD Radeon RX 7800 XT",
    device=0x747E,
    revision=0xC8,
    vram=16368 * MIB,
    kfd=RDNA + "simd_count 120 gfx_target_version 110001",
    width=256,
    clock=1218,
)
RX_7600 = Chip(
    name="AMD Radeon RX 7600",
    device=0x7480,
    revision=0xCF,
    vram=8176 * MIB,
    kfd=RDNA + "simd_count 64 gfx_target_version 110002",
    width=128,
    clock=1124,
    lanes=8,
)
RX_9070_XT = Chip(
    name="AMD Radeon RX 9070 XT",
    device=0x7550,
    revision=0xC0,
    vram=17095983104,
    kfd=RDNA
    + "simd_count 128 caches_count 138 array_count 8 gfx_target_version 120001 num_cp_queues 4 "
    "num_sdma_queues_per_engine 6 max_engine_clk_fcompute 2460",
    width=256,
    clock=1258,
    speed=GEN5,
    heap=2,
)
STRIX_HALO = Chip(
    name="AMD Radeon 8060S Graphics",
    device=0x1586,
    revision=0xC1,
    vram=2147483648,
    kfd=RDNA + "simd_count 80 gfx_target_version 110501 max_engine_clk_fcompute 2900",
    width=256,
    clock=1000,
    bridges=None,
    pci_class=DISPLAY,
    heap=2,
    bank=120259084288,
)
VEGA = Chip(
    name="AMD Radeon Instinct MI25",
    device=0x6860,
    revision=0x00,
    vram=17163091968,
    kfd="cpu_cores_count 0 simd_count 256 mem_banks_count 1 caches_count 96 io_links_count 1 "
    "cpu_core_id_base 0 simd_id_base 2147487744 max_waves_per_simd 10 lds_size_in_kb 64 "
    "gds_size_in_kb 0 wave_front_size 64 array_count 4 simd_arrays_per_engine 1 "
    "cu_per_simd_array 16 simd_per_cu 4 max_slots_scratch_cu 32 max_engine_clk_fcompute 1500 "
    "local_mem_size 17163091968 fw_version 392 capability 8832 sdma_fw_version 421 "
    "max_engine_clk_ccompute 3200",
    width=2048,
    clock=945,
    bridges=VEGA_BRIDGES,
    pci_class=DISPLAY,
    speed=GEN3,
)
MI210 = Chip(
    name="AMD Instinct MI210",
    device=0x740F,
    revision=0x02,
    vram=65520 * MIB,
    kfd="cpu_cores_count 0 simd_count 416 mem_banks_count 1 caches_count 217 io_links_count 4 "
    "p2p_links_count 5 cpu_core_id_base 0 max_waves_per_simd 8 lds_size_in_kb 64 gds_size_in_kb 0 "
    "num_gws 64 wave_front_size 64 array_count 8 simd_arrays_per_engine 1 cu_per_simd_array 14 "
    "simd_per_cu 4 max_slots_scratch_cu 32 gfx_target_version 90010 num_sdma_engines 2 "
    "num_sdma_xgmi_engines 3 num_sdma_queues_per_engine 8 num_cp_queues 24 "
    "max_engine_clk_fcompute 1700 local_mem_size 0 fw_version 92 capability 746037888 "
    "debug_prop 470 sdma_fw_version 9 num_xcc 1 max_engine_clk_ccompute 2450",
    width=4096,
    clock=1600,
    bridges=None,
    pci_class=DISPLAY,
)
MI300X = Chip(
    name="AMD Instinct MI300X",
    device=0x74A1,
    revision=0x00,
    vram=206141652992,
    kfd="cpu_cores_count 0 simd_count 1216 mem_banks_count 1 caches_count 626 io_links_count 7 "
    "wave_front_size 64 array_count 32 simd_per_cu 4 gfx_target_version 90402 "
    "num_sdma_xgmi_engines 14 max_engine_clk_fcompute 2100 local_mem_size 0 fw_version 166 "
    "sdma_fw_version 22 num_xcc 8",
    width=8192,
    clock=1300,
    bridges=None,
    pci_class=ACCELERATOR,
    speed=GEN5,
)
MI300X_EIGHTH = Chip(  # one of the eight partitions of a card in CPX mode
    name=MI300X.name,
    device=MI300X.device,
    revision=MI300X.revision,
    vram=MI300X.vram,
    kfd="cpu_cores_count 0 simd_count 152 mem_banks_count 1 caches_count 80 io_links_count 63 "
    "p2p_links_count 1 cpu_core_id_base 0 max_waves_per_simd 8 lds_size_in_kb 64 gds_size_in_kb 0 "
    "num_gws 64 wave_front_size 64 array_count 4 simd_arrays_per_engine 1 cu_per_simd_array 10 "
    "simd_per_cu 4 max_slots_scratch_cu 32 gfx_target_version 90402 num_sdma_engines 2 "
    "num_sdma_xgmi_engines 0 num_sdma_queues_per_engine 8 num_cp_queues 24 "
    "max_engine_clk_fcompute 2100 local_mem_size 0 fw_version 177 capability 2893521536 "
    "debug_prop 1511 sdma_fw_version 24 num_xcc 1 max_engine_clk_ccompute 2750",
    width=8192,
    clock=1300,
    bridges=None,
    pci_class=ACCELERATOR,
    speed=GEN5,
    bank=MI300X.vram // 8,
)

RADEON_VII = Chip(
    name="AMD Radeon VII",
    device=0x66AF,
    revision=0xC1,
    vram=17163091968,
    kfd="cpu_cores_count 0 mem_banks_count 1 wave_front_size 64 simd_per_cu 4 local_mem_size 0 "
    "simd_count 240 gfx_target_version 90006 max_engine_clk_fcompute 1801",
    width=4096,
    clock=1000,
    bridges=VEGA_BRIDGES,
    speed=GEN3,
)
CEZANNE = Chip(
    name="AMD Radeon Graphics",
    device=0x1638,
    revision=0xC6,
    vram=2048 * MIB,
    kfd="cpu_cores_count 0 mem_banks_count 1 wave_front_size 64 simd_per_cu 4 local_mem_size 0 "
    "simd_count 32 gfx_target_version 90012 max_engine_clk_fcompute 2000",
    width=128,
    clock=1600,
    bridges=None,
    heap=2,
)
VAN_GOGH = Chip(
    name="AMD Custom GPU 0405",
    device=0x163F,
    revision=0xAE,
    vram=1024 * MIB,
    kfd=RDNA + "simd_count 16 gfx_target_version 100303 max_engine_clk_fcompute 1600",
    width=128,
    clock=2750,
    bridges=None,
    heap=2,
)
PHOENIX = Chip(
    name="AMD Radeon 780M",
    device=0x15BF,
    revision=0xC4,
    vram=4096 * MIB,
    kfd=RDNA + "simd_count 24 gfx_target_version 110003 max_engine_clk_fcompute 2700",
    width=128,
    clock=2800,
    bridges=None,
    heap=2,
)
STRIX_POINT = Chip(
    name="AMD Radeon 890M Graphics",
    device=0x150E,
    revision=0xC1,
    vram=16384 * MIB,
    kfd=RDNA + "simd_count 32 gfx_target_version 110500 max_engine_clk_fcompute 2900",
    width=128,
    clock=2800,
    bridges=None,
    heap=2,
)
RX_9060_XT = Chip(
    name="AMD Radeon RX 9060 XT",
    device=0x7590,
    revision=0xC0,
    vram=17095983104,
    kfd=RDNA + "simd_count 64 gfx_target_version 120000 max_engine_clk_fcompute 3320",
    width=128,
    clock=1258,
    speed=GEN5,
    heap=1,
)
R9700 = Chip(
    name="AMD Radeon AI PRO R9700",
    device=0x7551,
    revision=0xC0,
    vram=34208743424,
    kfd=RDNA + "simd_count 128 gfx_target_version 120001 fw_version 3010",
    width=256,
    clock=1258,
    speed=GEN5,
    heap=2,
    reachable=256 * MIB,
)
MI355X = Chip(
    name="AMD Instinct MI355X",
    device=0x75A3,
    revision=0x00,
    vram=309220868096,
    kfd="cpu_cores_count 0 simd_count 1024 mem_banks_count 1 wave_front_size 64 array_count 32 "
    "simd_per_cu 4 gfx_target_version 90500 max_engine_clk_fcompute 2400 local_mem_size 0 "
    "num_xcc 8",
    width=8192,
    clock=2000,
    bridges=None,
    pci_class=ACCELERATOR,
    speed=GEN5,
)

NAMED = (RX_5700_XT, RX_6700_XT, RX_6900_XT, RX_7900_XTX, RX_7900_XT, RX_7800_XT, RX_7600)
NAMED_LATER = (*NAMED, RX_9070_XT, STRIX_HALO, VEGA, MI210, MI300X)


def replace_memory(chip: Chip, *, vram: int | None = None, reachable: int | None = None) -> Chip:
    """Return the same chip with another amount of memory, or another part of it reachable."""
    return replace(chip, vram=vram or chip.vram, reachable=reachable or chip.reachable)
