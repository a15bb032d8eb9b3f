"""Display adapters of Windows, replayed from a registry that is a tree of files."""

from __future__ import annotations

import sys

import pytest

from rocsteady.doctor.machine.gpus import Gpu, GpuSurvey
from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.system import Driver
from rocsteady.doctor.machine.windows import ADAPTERS, survey_adapters
from tests.doctor.machine.recorded_files import Files, view_of


def survey(files: Files) -> tuple[GpuSurvey, Driver]:
    return survey_adapters(view_of(files, platform="win32", folder="C:/"))


def adapter(number: str, **values: str) -> Files:
    return {f"{ADAPTERS}/{number}/{name}": value for name, value in values.items()}


def test_an_amd_card_and_its_driver() -> None:
    files = adapter(
        "0000",
        MatchingDeviceId=r"PCI\VEN_1002&DEV_7550&SUBSYS_24151458&REV_C0",
        DriverDesc="AMD Radeon RX 9070 XT",
        DriverVersion="32.0.21025.10016",
    )
    files[f"{ADAPTERS}/0000/HardwareInformation.qwMemorySize"] = str(16 * 1024**3)
    files[f"{ADAPTERS}/Properties"] = RecordedPath(errno="EACCES")

    gpu = Gpu(
        node=None,
        gfx=None,
        name="Radeon RX 9070 XT",
        pci_address="",
        device=0x7550,
        revision=0xC0,
        serial="",
        partition=None,
        integrated=False,
        compute_units=None,
        vram_bytes=16 * 1024**3,
        gtt_bytes=None,
        render_minor=None,
        link=None,
        iommu=None,
        asleep=False,
        firmware={},
    )
    assert survey(files) == (
        GpuSurvey(gpus=(gpu,)),
        Driver(loaded=True, version="32.0.21025.10016", kind="Windows"),
    )


def test_adapters_of_others_are_passed_over() -> None:
    files = adapter("0000", MatchingDeviceId=r"PCI\VEN_10DE&DEV_2684", DriverVersion="1")
    files |= adapter("0001", MatchingDeviceId=r"pci\ven_1002&dev_744c", DriverVersion="2")

    found, driver = survey(files)

    assert [(gpu.device, gpu.revision) for gpu in found.gpus] == [(0x744C, None)]
    assert driver == Driver(loaded=True, version="2", kind="Windows")


def test_no_adapter_is_an_answer() -> None:
    assert survey({}) == (
        GpuSurvey(),
        Driver(loaded=False, version=None, kind=""),
    )


def with_hipinfo(printed: str) -> list[str | None]:
    files = adapter("0000", MatchingDeviceId=r"PCI\VEN_1002&DEV_7550&REV_C0")
    files["C:/AMD/ROCm/bin/hipInfo.exe"] = RecordedPath(answer=printed)
    view = view_of(
        files, platform="win32", folder="C:/", environment={"HIP_PATH": "C:\\AMD\\ROCm\\"}
    )
    return [gpu.gfx for gpu in survey_adapters(view)[0].gpus]


def test_hipinfo_names_the_instruction_set() -> None:
    assert with_hipinfo("device#   0\r\nName:  AMD\r\ngcnArchName:    gfx1201\r\n") == ["gfx1201"]


def test_hipinfo_is_not_believed_if_it_counts_other_gpus_or_garbage() -> None:
    assert with_hipinfo("gcnArchName: gfx1201\ngcnArchName: gfx1036\n") == [None]
    assert with_hipinfo("Segmentation fault") == [None]


if sys.platform == "win32":
    from rocsteady.doctor.machine.windows import in_registry, registry_names, registry_text


@pytest.mark.skipif(sys.platform != "win32", reason="needs Windows: there is no registry here")
def test_keys_are_folders_and_values_are_files() -> None:
    if sys.platform == "win32":
        windows = "/HKLM/SOFTWARE/Microsoft/Windows NT/CurrentVersion"
        assert in_registry(windows)
        assert registry_text(f"{windows}/CurrentBuild").isdecimal()
        assert "Fonts" in registry_names(windows)
        with pytest.raises(FileNotFoundError):
            registry_text(f"{windows}/no such value")
