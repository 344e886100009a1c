"""What processes use of GPUs: the thread that looks, and NVIDIA's library as far as it is asked."""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from distdbg.follow.answers.gpus import Gpus, GpuUse, Nvml

LIBRARY = """
#include <stddef.h>
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, mem, enc, dec; } sample;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) { *gpu = (void*)(size_t)(index + 1); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, process* found) {
  *count = 2;
  found[0] = (process){11, 1000, -1, -1};
  found[1] = (process){12, gpu == (void*)1 ? ~0ull : 500, -1, -1};
  return PROCESSES;
}
int nvmlDeviceGetProcessUtilization(void* gpu, sample* found, unsigned* count, unsigned long long since) {
  if (gpu == (void*)2) return 3;
  if (since >= 200) { *count = 0; return 6; }
  *count = 2;
  found[0] = (sample){11, 200, 70, 5, 0, 0};
  found[1] = (sample){11, 100, 10, 5, 0, 0};
  return 0;
}
"""


def build(folder: Path, gpus: int = 2, processes: int = 0) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is missing")
    source, library = folder / "nvml.c", folder / "libnvml.so"
    source.write_text(LIBRARY)
    flags = [f"-DGPUS={gpus}", f"-DPROCESSES={processes}"]
    command = [compiler, "-shared", "-fPIC", *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return str(library)


def wait_for(is_it: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not is_it():
        assert time.monotonic() < deadline
        time.sleep(0.005)  # the thread looks when it gets to it


class Reported:
    """A binding that says what it was given, then fails."""

    def __init__(self, *answers: Mapping[int, GpuUse]) -> None:
        self.answers = list(answers)
        self.is_closed = False

    def uses(self) -> Mapping[int, GpuUse]:
        if not self.answers:
            raise OSError("the driver is gone")
        return self.answers.pop(0)

    def close(self) -> None:
        self.is_closed = True


def test_use_is_summed_over_gpus_and_the_newest_share_counts(tmp_path: Path) -> None:
    nvml = Nvml(build(tmp_path))
    assert nvml.uses() == {11: GpuUse(0.7, 2000), 12: GpuUse(None, 500)}
    assert nvml.uses() == {11: GpuUse(None, 2000), 12: GpuUse(None, 500)}
    nvml.close()


def test_a_library_that_refuses_or_knows_no_gpu_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no GPU found"):
        Nvml(build(tmp_path, gpus=0))
    (tmp_path / "other").mkdir()
    nvml = Nvml(build(tmp_path / "other", processes=999))
    with pytest.raises(OSError, match="nvmlDeviceGetComputeRunningProcesses_v3 says 999"):
        nvml.uses()


def test_a_library_without_the_functions_is_none(tmp_path: Path) -> None:
    gpus = Gpus(lambda: Nvml(ctypes.util.find_library("c") or "libc.so.6"))
    gpus.use_of(1)
    wait_for(lambda: not gpus.has_any)
    assert gpus.use_of(1) is None


def test_nothing_is_told_where_there_is_no_library() -> None:
    gpus = Gpus(lambda: Nvml("libno-such-thing.so.1"))
    assert gpus.use_of(1) is None
    wait_for(lambda: not gpus.has_any)


def test_use_is_told_until_the_first_error_which_switches_it_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    use = {5: GpuUse(0.5, 100)}
    reported = Reported(use, use, use)
    gpus = Gpus(lambda: reported, every_s=0.02)
    wait_for(lambda: gpus.use_of(5) == use[5])
    assert gpus.use_of(6) is None
    wait_for(lambda: not gpus.has_any)
    wait_for(lambda: reported.is_closed)
    assert gpus.use_of(5) is None
    assert [record.getMessage() for record in caplog.records] == [
        "GPU use is no longer available: the driver is gone"
    ]


def test_closing_ends_the_thread() -> None:
    reported = Reported({}, {})
    gpus = Gpus(lambda: reported, every_s=60)
    gpus.use_of(1)
    wait_for(lambda: len(reported.answers) == 1)
    gpus.close()
    wait_for(lambda: reported.is_closed)
