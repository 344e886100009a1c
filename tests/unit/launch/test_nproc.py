"""How many ranks a host starts, and which GPUs it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.errors import UsageError
from distdbg.launch.machine import find_gpus, read_gpu_node
from distdbg.launch.nproc import Gpu, count_ranks, visible_gpus

GPUS = tuple(Gpu(minor=n, pci=f"0000:0{n}:00.0", uuid=f"GPU-{n}{n}ab") for n in range(4))

INFORMATION = """Model: \t\t NVIDIA H100
IRQ:   \t\t 18
GPU UUID: \t {uuid}
Video BIOS: \t 96.00
Bus Type: \t PCIe
Bus Location: \t {pci}
Device Minor: \t {minor}
"""


@pytest.mark.parametrize(
    ("text", "gpus", "count"),
    [("3", 2, 3), ("cpu", 2, 6), ("gpu", 2, 2), ("auto", 2, 2), ("auto", 0, 6), (" 4 ", 0, 4)],
)
def test_a_word_stands_for_what_the_host_has(text: str, gpus: int, count: int) -> None:
    assert count_ranks(text, cpus=6, gpus=gpus) == count


@pytest.mark.parametrize("text", ["xpu", "", "2.5", "all"])
def test_another_word_is_unsupported(text: str) -> None:
    with pytest.raises(UsageError, match=f"Unsupported --nproc-per-node='{text}'"):
        count_ranks(text, cpus=6, gpus=2)


def test_ranks_by_gpu_need_one() -> None:
    with pytest.raises(UsageError, match="Cuda is not available") as caught:
        count_ranks("gpu", cpus=6, gpus=0)
    assert "auto" in str(caught.value.hint)


def test_a_count_that_no_host_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="a host has at most 65536 ranks"):
        count_ranks("100000000000", cpus=6, gpus=2)


@pytest.mark.parametrize(
    ("visible", "minors"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 3", [1, 3]),
        ("1,7,2", [1]),
        ("-1,0", []),
        ("NoDevFiles", []),
        ("GPU-11", [1]),
        ("GPU-", []),
        ("0,GPU-none", [0]),
    ],
)
def test_the_list_of_visible_gpus_ends_at_its_first_bad_entry(
    visible: str | None, minors: list[int]
) -> None:
    assert [gpu.minor for gpu in visible_gpus(GPUS, visible)] == minors


def test_names_of_gpus_are_believed_where_none_are_known() -> None:
    assert len(visible_gpus((Gpu(minor=0), Gpu(minor=1)), "GPU-a,GPU-b")) == 2
    assert len(visible_gpus(GPUS, "MIG-a,MIG-b,MIG-c")) == 3
    assert visible_gpus((), "GPU-a") == ()


def test_gpus_are_those_that_have_a_device_file_here(tmp_path: Path) -> None:
    driver, devices = tmp_path / "gpus", tmp_path / "dev"
    devices.mkdir()
    for minor, pci in ((2, "0000:1B:00.0"), (0, "0000:5D:00.0"), (1, "0000:9A:00.0")):
        (driver / pci).mkdir(parents=True)
        text = INFORMATION.format(uuid=f"GPU-{minor}", pci=pci, minor=minor)
        (driver / pci / "information").write_text(text)
    for name in ("nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (devices / name).touch()
    found = find_gpus(driver, devices)
    assert found == (
        Gpu(minor=2, pci="0000:1b:00.0", uuid="GPU-2"),
        Gpu(minor=0, pci="0000:5d:00.0", uuid="GPU-0"),
    )
    assert find_gpus(tmp_path / "none", devices) == (Gpu(minor=0), Gpu(minor=2))
    assert find_gpus(driver, tmp_path / "none") == ()


def test_the_node_of_a_gpu_is_0_where_the_host_has_no_nodes(tmp_path: Path) -> None:
    for pci, text in (("0000:01:00.0", "1\n"), ("0000:02:00.0", "-1\n")):
        (tmp_path / pci).mkdir()
        (tmp_path / pci / "numa_node").write_text(text)
    nodes = [read_gpu_node(Gpu(minor=0, pci=f"0000:0{n}:00.0"), tmp_path) for n in (1, 2, 3)]
    assert nodes == [1, 0, 0]
    assert read_gpu_node(Gpu(minor=0), tmp_path) == 0
