"""The survey tells these apart: no driver, healthy, partitioned, withheld, too old, not offered."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.doctor.machine.gpus import (
    NODES,
    PCI,
    Access,
    Gpu,
    GpuSurvey,
    Node,
    PcieLink,
    PciGpu,
    displays,
    parse_properties,
    pci_address,
    read_access,
    read_link,
    redirects_peers,
    survey_gpus,
)
from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.view import View
from rocsteady.system.disk_root import DiskRoot
from rocsteady.system.root import Device, User
from tests.doctor.machine.recorded_files import Files, view_of

GIB = 1024**3
MI300X = {
    "simd_count": 1216,
    "simd_per_cu": 4,
    "gfx_target_version": 90402,
    "vendor_id": 4098,
    "device_id": 0x74A1,
    "location_id": 0x0500,
    "domain": 0,
    "unique_id": 77,
    "drm_render_minor": 128,
    "fw_version": 177,
    "sdma_fw_version": 22,
    "local_mem_size": 0,
}
NODE_1 = Gpu(
    node=1,
    gfx="gfx942",
    name="",
    pci_address="0000:05:00.0",
    device=0x74A1,
    revision=None,
    serial="77",
    partition=None,
    integrated=False,
    compute_units=304,
    vram_bytes=None,
    gtt_bytes=None,
    render_minor=128,
    link=None,
    iommu=None,
    asleep=False,
    firmware={"kfd": "177", "kfd_sdma": "22"},
)


def survey(files: Files) -> GpuSurvey:
    return survey_gpus(view_of(files))


def node(number: int, *, gpu_id: int, **properties: int) -> Files:
    """Lay one KFD node out as the kernel does."""
    lines = [f"{name} {value}\n" for name, value in properties.items()]
    folder = f"{NODES}/{number}"
    return {f"{folder}/gpu_id": f"{gpu_id}\n", f"{folder}/properties": "".join(lines)}


def cards(*places: int, serial: int = 77) -> Files:
    """Lay out nodes that differ in their place only."""
    files: Files = {}
    for number, place in enumerate(places, start=1):
        own = {"location_id": place, "unique_id": serial}
        files |= node(number, gpu_id=number, **MI300X | own)
    return files


def bank(number: int, heap: int, size: int) -> Files:
    text = f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\n"
    return {f"{NODES}/1/mem_banks/{number}/properties": text}


def on_bus(address: str, **texts: str) -> Files:
    return {f"{PCI}/{address}/{name}": f"{text}\n" for name, text in texts.items()}


def only(files: Files) -> Gpu:
    (gpu,) = survey(files).gpus
    return gpu


def test_no_driver_is_an_answer_not_an_error() -> None:
    assert survey({}) == GpuSurvey()


def test_a_driver_without_gpus_answers() -> None:
    files = node(0, gpu_id=0, cpu_cores_count=16, simd_count=0)

    assert survey(files) == GpuSurvey()


def test_reads_a_card_and_passes_over_the_cpu() -> None:
    files = node(0, gpu_id=0, cpu_cores_count=16, simd_count=0) | node(1, gpu_id=4711, **MI300X)

    assert survey(files) == GpuSurvey(gpus=(NODE_1,))


def test_everything_that_the_card_itself_publishes_is_read() -> None:
    address = "0000:05:00.0"
    files = (
        node(1, gpu_id=4711, **MI300X)
        | bank(0, 1, 192 * GIB)
        | on_bus(
            address,
            vendor="0x1002",
            device="0x74a1",
            revision="0x01",
            product_name="AMD Instinct MI300X OAM",
            mem_info_vram_total=str(191 * GIB),
            mem_info_gtt_total=str(64 * GIB),
            current_link_width="16",
            current_link_speed="32.0 GT/s PCIe",
            max_link_width="16",
            max_link_speed="32.0 GT/s PCIe",
        )
        | {f"{PCI}/{address}/power/runtime_status": "active\n"}
        | {f"{PCI}/{address}/iommu_group/type": "identity\n"}
        | {f"{PCI}/{address}/fw_version/smc_fw_version": "0x00557800\n"}
    )

    assert only(files) == replace(
        NODE_1,
        name="AMD Instinct MI300X OAM",
        revision=1,
        vram_bytes=192 * GIB,
        gtt_bytes=64 * GIB,
        link=PcieLink(width=16, speed=32.0),
        iommu="identity",
        firmware={"smc": "0x00557800", "kfd": "177", "kfd_sdma": "22"},
    )


@pytest.mark.parametrize("shift", [0, 28], ids=["in the function", "in the top bits"])
@pytest.mark.parametrize("serial", [77, 0], ids=["with a serial", "without"])
def test_partitions_of_one_card_are_counted(shift: int, serial: int) -> None:
    gpus = survey(cards(*(0x0500 | index << shift for index in range(3)), serial=serial)).gpus

    assert [gpu.partition for gpu in gpus] == [0, 1, 2]
    assert {gpu.serial for gpu in gpus} == {"77" if serial else ""}
    assert {gpu.pci_address[:-1] for gpu in gpus} == {"0000:05:00."}


def test_two_cards_without_serials_are_two_whole_cards() -> None:
    gpus = survey(cards(0x0500, 0x0600, serial=0)).gpus

    assert [(gpu.partition, gpu.serial) for gpu in gpus] == [(None, ""), (None, "")]


def test_partitions_read_what_only_the_card_publishes_from_its_first_function() -> None:
    files = on_bus("0000:05:00.0", revision="0x02", mem_info_gtt_total="7")

    gpus = survey(files | cards(0x0500, 0x0501)).gpus

    assert [(gpu.revision, gpu.gtt_bytes) for gpu in gpus] == [(2, 7), (2, 7)]


def test_nodes_come_in_number_order_not_name_order() -> None:
    files: Files = {}
    for number in (10, 9):
        files |= node(number, gpu_id=number, **MI300X | {"unique_id": number})

    assert [gpu.node for gpu in survey(files).gpus] == [9, 10]


def test_a_gpu_the_container_was_not_given_is_withheld() -> None:
    files = node(1, gpu_id=1, **MI300X)
    for name in ("gpu_id", "properties"):
        files[f"{NODES}/2/{name}"] = RecordedPath(errno="EPERM")

    assert survey(files) == GpuSurvey(gpus=(NODE_1,), withheld_nodes=(2,))


def test_a_card_on_the_bus_is_not_called_unoffered_where_some_are_withheld() -> None:
    files: Files = {f"{NODES}/2/gpu_id": RecordedPath(errno="EACCES")}
    files |= on_bus("0000:03:00.0", vendor="0x1002", **{"class": "0x030000"})

    assert survey(files) == GpuSurvey(withheld_nodes=(2,))


def test_a_driver_too_old_to_say_the_instruction_set_leaves_it_open() -> None:
    old = {name: value for name, value in MI300X.items() if name != "gfx_target_version"}

    assert only(node(1, gpu_id=1, **old)).gfx is None


def test_a_gpu_is_known_by_its_id_where_the_properties_say_nothing() -> None:
    gpu = only(node(1, gpu_id=4711))

    assert (gpu.node, gpu.gfx, gpu.compute_units, gpu.firmware) == (1, None, None, {})


def test_a_gpu_is_known_by_its_properties_where_the_id_is_missing() -> None:
    files = node(1, gpu_id=0, **MI300X)
    del files[f"{NODES}/1/gpu_id"]

    assert only(files) == NODE_1


@pytest.mark.parametrize(
    ("banks", "local_mem_size", "vram_total", "found"),
    [
        (bank(0, 1, 16 * GIB), 0, 15 * GIB, 16 * GIB),  # the banks speak for the node
        (bank(0, 2, 16 * GIB) | bank(1, 1, 256), 0, 0, 16 * GIB + 256),  # both heaps count
        (bank(0, 0, 16 * GIB), 0, 15 * GIB, 15 * GIB),  # system memory is not the card's
        ({}, 8 * GIB, 15 * GIB, 8 * GIB),  # kernels before 5.x say it so
        ({}, 0, 15 * GIB, 15 * GIB),
        ({}, 0, 0, None),
    ],
)
def test_memory_is_taken_from_whoever_knows_it(
    banks: Files, local_mem_size: int, vram_total: int, found: int | None
) -> None:
    files = node(1, gpu_id=1, **MI300X | {"local_mem_size": local_mem_size})
    files |= banks | on_bus("0000:05:00.0", mem_info_vram_total=str(vram_total))

    assert only(files).vram_bytes == found


def test_an_integrated_gpu_has_the_carve_out_not_what_kfd_lends_it() -> None:
    strix_halo = MI300X | {"gfx_target_version": 110501, "device_id": 0x1586}
    files = node(1, gpu_id=1, **strix_halo) | bank(0, 1, 96 * GIB)
    files |= on_bus("0000:05:00.0", mem_info_vram_total=str(GIB), mem_info_gtt_total=str(62 * GIB))

    gpu = only(files)

    assert (gpu.gfx, gpu.integrated) == ("gfx1151", True)
    assert (gpu.vram_bytes, gpu.gtt_bytes) == (GIB, 62 * GIB)


def test_mi300a_shares_its_instruction_set_with_cards_and_is_integrated() -> None:
    assert only(node(1, gpu_id=1, **MI300X | {"device_id": 0x74A0})).integrated


def test_the_link_of_a_sleeping_card_is_not_read_as_that_would_wake_it() -> None:
    address = "0000:05:00.0"
    files = node(1, gpu_id=1, **MI300X)
    files |= on_bus(address, current_link_width="16", current_link_speed="16.0 GT/s PCIe")
    files[f"{PCI}/{address}/power/runtime_status"] = "suspended\n"
    view = view_of(files)

    (gpu,) = survey_gpus(view).gpus

    assert (gpu.asleep, gpu.link) == (True, None)
    assert not [path for _, path, _ in view.answers if "_link_" in path]


def test_the_name_comes_from_the_table_of_libdrm_where_the_card_has_none() -> None:
    table = "# device, revision, name\n74A1,\t00,\tAMD Other\n74A1,\t01,\tAMD Instinct MI300X\n"
    files = node(1, gpu_id=1, **MI300X) | on_bus("0000:05:00.0", revision="0x01")
    files["/usr/share/libdrm/amdgpu.ids"] = table

    assert only(files).name == "Instinct MI300X"


@pytest.mark.parametrize("driver", ["", "vfio-pci"])
def test_a_card_on_the_bus_that_compute_does_not_offer_is_named_with_its_holder(
    driver: str,
) -> None:
    address = "0000:03:00.0"
    files = on_bus(
        address, vendor="0x1002", device="0x7480", revision="0xcf", **{"class": "0x030000"}
    )
    if driver:
        files[f"{PCI}/{address}/driver"] = RecordedPath(link=f"../../drivers/{driver}")
        files[f"/sys/bus/pci/drivers/{driver}/module"] = ""

    assert survey(files) == GpuSurvey(
        not_offered=(PciGpu(pci_address=address, device=0x7480, revision=0xCF, driver=driver),),
    )


def test_only_gpus_of_amd_that_are_not_offered_already_are_named() -> None:
    files = (
        node(1, gpu_id=1, **MI300X)
        | on_bus("0000:05:00.0", vendor="0x1002", **{"class": "0x120000"})  # offered
        | on_bus("0000:05:00.1", vendor="0x1002", **{"class": "0x040300"})  # its sound
        | on_bus("0000:06:00.0", vendor="0x10de", **{"class": "0x030000"})
        | on_bus("0000:07:00.0", vendor="0x1002", **{"class": "0x040300"})
    )

    assert survey(files).not_offered == ()


@pytest.mark.parametrize(
    ("domain", "location", "address"),
    [
        (0, 0x0300, "0000:03:00.0"),
        (1, 0xC3A9, "0001:c3:15.1"),
        (0, 0x7000_0500, "0000:05:00.0"),
        (0x1_0002, 0x0500, "0002:05:00.0"),
    ],
)
def test_pci_address(domain: int, location: int, address: str) -> None:
    assert pci_address(domain, location) == address


def test_lines_of_properties_that_are_anything_else_are_passed_over() -> None:
    text = "simd_count 4\nname Vega 20\n\nunique_id 18446744073709551615\nx -1\ny 0x10\n z 3"

    assert parse_properties(text) == {"simd_count": 4, "unique_id": 2**64 - 1}


def test_names_that_are_not_nodes_are_passed_over() -> None:
    files = node(1, gpu_id=1, **MI300X)
    files[NODES] = RecordedPath(names=("1", "..", "x", "9" * 5000, "²", "-1"))

    assert survey(files) == GpuSurvey(gpus=(NODE_1,))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    properties=st.text(max_size=80),
    facts=st.dictionaries(st.sampled_from(sorted(MI300X)), st.integers(0, 10**20 - 1)),
    card=st.dictionaries(
        st.sampled_from(["device", "vendor", "revision", "class", "mem_info_vram_total"]),
        st.text(max_size=30),
    ),
)
def test_no_node_is_too_strange_to_survey(
    properties: str, facts: dict[str, int], card: dict[str, str]
) -> None:
    files = node(1, gpu_id=1, **facts) | on_bus("0000:00:00.0", **card)
    files[f"{NODES}/2/gpu_id"] = "2"
    files[f"{NODES}/2/properties"] = properties

    assert [gpu.node for gpu in survey(files).gpus] == [1, 2]


ALICE = User(uid=1000, groups={"1000": "alice", "992": "render"})


def access(files: Files, user: User | None = ALICE) -> Access:
    return read_access(view_of(files, user=user))


def device(gid: int, rights: str) -> RecordedPath:
    return RecordedPath(device=Device(mode="0660", uid=0, gid=gid, access=rights))


def test_nodes_that_may_be_read_and_written_are_usable() -> None:
    files: Files = {
        "/dev/kfd": device(992, "rw"),
        "/dev/dri/renderD128": device(992, "rw"),
        "/dev/dri/card0": device(44, ""),
    }

    assert access(files) == Access(
        kfd=Node(path="/dev/kfd", mode="0660", group="render", usable=True),
        kfd_known=True,
        render=(Node(path="/dev/dri/renderD128", mode="0660", group="render", usable=True),),
        user=ALICE,
    )


def test_reading_alone_is_not_enough_and_an_unknown_group_keeps_its_number() -> None:
    files: Files = {"/dev/kfd": device(109, "r")}

    assert access(files).kfd == Node(path="/dev/kfd", mode="0660", group="109", usable=False)


@pytest.mark.parametrize("files", [{}, {"/dev/kfd": "", "/dev/dri/renderD128": ""}])
def test_no_node_is_an_answer_and_a_plain_file_is_no_device(files: Files) -> None:
    assert access(files) == Access(kfd=None, kfd_known=True, render=(), user=ALICE)


def test_a_copied_folder_cannot_say() -> None:
    assert access({}, user=None) == Access(kfd=None, kfd_known=False, render=(), user=None)


CARD = "/sys/bus/pci/devices/0000:03:00.0"
PORT = "/sys/devices/pci0000:00/0000:00:01.1"
UPSTREAM, DOWNSTREAM = f"{PORT}/0000:01:00.0", f"{PORT}/0000:01:00.0/0000:02:00.0"
GPU = f"{DOWNSTREAM}/0000:03:00.0"


def link_of(files: Files) -> PcieLink | None:
    files = files | {
        CARD: RecordedPath(link=f"../../../devices/{GPU.removeprefix('/sys/devices/')}")
    }
    return read_link(view_of(files), CARD)


def pci_device(folder: str, width: str, speed: str, *, vendor: str, kind: str) -> Files:
    texts = {
        "vendor": vendor,
        "class": kind,
        "current_link_width": width,
        "current_link_speed": speed,
        "max_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
    }
    return {f"{folder}/{name}": f"{text}\n" for name, text in texts.items()}


def gpu(width: str = "16", speed: str = "32.0 GT/s PCIe") -> Files:
    return pci_device(GPU, width, speed, vendor="0x1002", kind="0x030000")


def bridge(folder: str, width: str, speed: str, vendor: str = "0x1002") -> Files:
    return pci_device(folder, width, speed, vendor=vendor, kind="0x060400")


FULL, HALF, SLOW = "32.0 GT/s PCIe", "16.0 GT/s PCIe", "2.5 GT/s PCIe"
SLOT = bridge(DOWNSTREAM, "16", FULL) | bridge(UPSTREAM, "16", HALF)
BOARD = bridge(PORT, "1", SLOW, vendor="0x1022")
OTHER = bridge(DOWNSTREAM, "16", HALF, vendor="0x1b21") | bridge(UPSTREAM, "1", SLOW)


@pytest.mark.parametrize(
    ("files", "width", "speed"),
    [
        pytest.param(gpu("8", HALF), 8, 16.0, id="without bridges, the card itself"),
        pytest.param(gpu("16", "8 GT/s"), 16, 8.0, id="as older kernels spell it"),
        pytest.param(gpu() | SLOT | bridge(UPSTREAM, "4", HALF), 4, 16.0, id="at the slot"),
        pytest.param(gpu() | SLOT | BOARD, 16, 16.0, id="bridges of the board are not climbed"),
        pytest.param(gpu() | OTHER, 16, 32.0, id="a bridge of another maker ends the climb"),
    ],
)
def test_the_link_that_counts(files: Files, width: int, speed: float) -> None:
    assert link_of(files) == PcieLink(width=width, speed=speed)


@pytest.mark.parametrize(
    ("width", "speed"),
    [("0", "16.0 GT/s PCIe"), ("16", "Unknown"), ("", ""), ("x16", "16.0 GT/s PCIe")],
)
def test_a_link_that_is_down_or_unknown_is_no_link(width: str, speed: str) -> None:
    assert link_of(gpu(width, speed)) is None


def test_the_climb_ends_at_the_root_of_a_hostile_recording() -> None:
    files: Files = {"/class": "0x060400", "/vendor": "0x1002", CARD: RecordedPath(link="/card")}

    assert read_link(view_of(files), CARD) is None


@pytest.mark.parametrize(
    ("capabilities", "redirected"),
    [
        ("0d000100 0f00 0c00", True),  # ACS with both redirects on
        ("0d000100 0f00 0000", False),
        ("01000111 00000000 00000000 00000000 0d000100 0f00 0400", True),  # after AER, at 0x110
        ("01000100 00000000", None),  # no ACS
        ("", None),  # not readable by an ordinary user
    ],
)
def test_acs_is_found_among_the_capabilities_of_a_bridge(
    capabilities: str, *, redirected: bool | None
) -> None:
    space = bytes.fromhex(capabilities.replace(" ", ""))
    files: Files = gpu() | bridge(PORT, "16", "16.0 GT/s PCIe", vendor="0x1022")
    files |= bridge(UPSTREAM, "16", "16.0 GT/s PCIe") | bridge(DOWNSTREAM, "16", "16.0 GT/s PCIe")
    files[CARD] = RecordedPath(link=f"../../../devices/{GPU.removeprefix('/sys/devices/')}")
    if space:
        pieces = {"256": base64.b64encode(space + bytes(64)).decode()}
        files[f"{PORT}/config"] = RecordedPath(pieces=pieces)

    assert redirects_peers(view_of(files), CARD) is redirected


@pytest.fixture
def drm_cards(tmp_path: Path) -> Path:
    folder = tmp_path / "sys/class/drm"
    for card, vendor in (("card0", "0x1002"), ("card1", "0x10de")):
        (folder / card / "device").mkdir(parents=True)
        (folder / card / "device/vendor").write_text(f"{vendor}\n")
        for connector, status in (("DP-1", "connected"), ("HDMI-A-1", "disconnected")):
            (folder / f"{card}-{connector}").mkdir()
            (folder / f"{card}-{connector}/status").write_text(f"{status}\n")
    return tmp_path


def test_a_screen_on_an_amd_gpu(drm_cards: Path) -> None:
    assert displays(View(DiskRoot(drm_cards))) == ("card0-DP-1",)


def test_a_card_without_a_screen(drm_cards: Path) -> None:
    (drm_cards / "sys/class/drm/card0-DP-1/status").write_text("disconnected\n")

    assert displays(View(DiskRoot(drm_cards))) == ()


def test_where_the_kernel_says_nothing_it_cannot_be_told(tmp_path: Path) -> None:
    assert displays(View(DiskRoot(tmp_path))) is None
