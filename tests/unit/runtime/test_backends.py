"""Names of backends and devices."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, UsageError
from distdbg.runtime.backends import registry
from distdbg.runtime.backends.registry import check_available
from tests.unit.nccl.stand_in import StandInArray


def test_a_backend_is_its_name_in_lower_case() -> None:
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
    assert dist.Backend("new") == "new"
    with pytest.raises(UsageError, match="is a str"):
        dist.Backend(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("gloo", {"cpu": "gloo", "cuda": "gloo"}),
        ("undefined", {"cpu": "gloo", "cuda": "gloo"}),
        ("distdbg", {"cpu": "distdbg"}),
        ("cpu:gloo,cuda:nccl", {"cpu": "gloo", "cuda": "nccl"}),
    ],
)
def test_a_config_names_the_backend_of_each_device(text: str, devices: dict[str, str]) -> None:
    config = dist.BackendConfig(dist.Backend(text))
    assert config.get_device_backend_map() == devices
    assert dist.BackendConfig(str(config)).get_device_backend_map() == devices
    check_available(config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu:gloo,cpu:nccl", "twice"),
        ("cpu:a:b", "not device:backend"),
        ("cpu:gloo,nccl", "not device:backend"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dist.BackendConfig(dist.Backend(text))


def test_known_names_that_are_not_available() -> None:
    assert dist.is_gloo_available()
    assert dist.is_backend_available("distdbg")
    assert not dist.is_xccl_available()
    assert dist.is_backend_available("ucc") is dist.is_ucc_available()
    assert dist.is_backend_available("cpu:gloo,cuda:nccl") is dist.is_nccl_available()
    with pytest.raises(ConfigError, match="'xccl' is not available here; available: gloo"):
        check_available(dist.BackendConfig("xccl"))


def test_nccl_without_cupy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert not dist.is_nccl_available()
    with pytest.raises(ConfigError, match="'nccl' is not available here: CuPy is not") as missing:
        check_available(dist.BackendConfig("nccl"))
    assert missing.value.hint is not None
    assert "pip install 'distdbg[gpu]'" in missing.value.hint


def test_where_there_is_no_gpu_nothing_is_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    runtime = SimpleNamespace(getDeviceCount=fail)
    cupy = ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None)
    cupy.cuda = SimpleNamespace(runtime=runtime)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", SimpleNamespace(available=True))
    with pytest.raises(ConfigError, match="there is no GPU: cudaErrorInsufficient") as missing:
        check_available(dist.BackendConfig("nccl"))
    assert missing.value.hint is not None
    assert "nvidia-smi" in missing.value.hint
    assert "pip" not in missing.value.hint


def test_default_backends_of_devices() -> None:
    class Device:
        type = "cuda"

    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.get_default_backend_for_device("cuda:1") == "nccl"
    assert dist.get_default_backend_for_device(Device()) == "nccl"
    with pytest.raises(UsageError, match="'tpu'"):
        dist.get_default_backend_for_device("tpu")


@pytest.mark.parametrize("backend", ["xccl", "nobodys", "mps:gloo"])
def test_a_backend_that_is_not_there_is_a_backend_error(backend: str) -> None:
    with pytest.raises(dist.DistBackendError, match=backend):
        dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    assert not dist.is_initialized()


def test_our_own_engine_may_be_named_for_gpus_alone() -> None:
    def program() -> list[float]:
        pg = dist.new_group(backend="cuda:gloo")
        x = StandInArray(np.ones(2))
        dist.all_reduce(x, group=pg)
        dist.barrier(pg)
        found: list[float] = x.host.tolist()
        return found

    assert dist.run_threads(program, 2, timeout_s=60) == [[2, 2]] * 2


def test_of_several_backends_that_are_not_there_each_is_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_why_no_nccl", lambda: "no GPU")
    monkeypatch.setattr(registry, "_why_no_ucc", lambda: "no libucc")
    with pytest.raises(dist.DistBackendError) as missing:
        check_available(dist.BackendConfig(dist.Backend("cpu:ucc,cuda:nccl")))
    assert missing.value.details == ["nccl: no GPU", "ucc: no libucc"]
