"""The services of compose.yaml go together: files, ports, data sources, and nothing beyond loopback."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dashboards.generate.links import TEMPO_UID
from distdbg.cli.exporter import PORT

DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
LOOPBACK = "127.0.0.1"


def load(name: str) -> Any:
    return yaml.safe_load((DASHBOARDS / name).read_text())


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found = load("compose.yaml")["services"]
    assert isinstance(found, dict)
    return found


def test_every_service_has_a_version_and_the_network_of_the_host(services: dict[str, Any]) -> None:
    assert sorted(services) == ["grafana", "otel-collector", "prometheus", "tempo"]
    for service in services.values():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert service["network_mode"] == "host"
        assert "ports" not in service


def test_every_folder_that_a_service_is_given_is_there(services: dict[str, Any]) -> None:
    volumes = load("compose.yaml")["volumes"]
    for service in services.values():
        for volume in service["volumes"]:
            source, _, options = volume.partition(":")
            if source.startswith("./"):
                assert (DASHBOARDS / source).is_dir()
                assert options.endswith(":ro")
            else:
                assert source in volumes


def test_all_listen_on_loopback_alone_at_ports_of_their_own(services: dict[str, Any]) -> None:
    tempo = load("tempo/tempo.yaml")
    collector = load("otel-collector/config.yaml")
    environment = services["grafana"]["environment"]
    [listen] = [flag for flag in services["prometheus"]["command"] if "web.listen-address" in flag]
    places = [
        listen.partition("=")[2],
        f"{environment['GF_SERVER_HTTP_ADDR']}:{environment['GF_SERVER_HTTP_PORT']}",
        f"{tempo['server']['http_listen_address']}:{tempo['server']['http_listen_port']}",
        f"{tempo['server']['grpc_listen_address']}:{tempo['server']['grpc_listen_port']}",
        tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"],
        *(one["endpoint"] for one in collector["receivers"]["otlp"]["protocols"].values()),
    ]
    assert {place.rpartition(":")[0] for place in places} == {LOOPBACK}
    assert len(set(places)) == len(places)
    assert tempo["memberlist"]["bind_addr"] == [LOOPBACK]
    # Both are where OTEL_EXPORTER_OTLP_ENDPOINT points when it is not set.
    assert {f"{LOOPBACK}:4317", f"{LOOPBACK}:4318"} <= set(places)


def test_spans_go_from_the_collector_to_tempo() -> None:
    collector = load("otel-collector/config.yaml")
    tempo = load("tempo/tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]
    assert collector["exporters"]["otlp"]["endpoint"] == tempo["endpoint"]
    for pipeline in collector["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= collector[part].keys()


def test_data_sources_are_where_the_services_listen(services: dict[str, Any]) -> None:
    sources = {
        source["type"]: source
        for source in load("grafana/provisioning/datasources/distdbg.yaml")["datasources"]
    }
    assert (
        f"--web.listen-address={urlsplit(sources['prometheus']['url']).netloc}"
        in (services["prometheus"]["command"])
    )
    assert (
        urlsplit(sources["tempo"]["url"]).port
        == load("tempo/tempo.yaml")["server"]["http_listen_port"]
    )
    assert sources["tempo"]["uid"] == TEMPO_UID
    [exemplar] = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplar["name"] == "trace_id"
    assert exemplar["datasourceUid"] == TEMPO_UID
    scrape = load("prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert sources["prometheus"]["jsonData"]["timeInterval"] == scrape


def test_grafana_finds_the_dashboards_and_lets_nobody_change_them(services: dict[str, Any]) -> None:
    grafana = services["grafana"]
    [provider] = load("grafana/provisioning/dashboards/distdbg.yaml")["providers"]
    folder = provider["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    assert not provider["allowUiUpdates"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == folder
    assert (DASHBOARDS / "grafana" / "dashboards" / home.name).exists()
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_prometheus_asks_where_the_exporter_is() -> None:
    [scrape] = load("prometheus/prometheus.yml")["scrape_configs"]
    [discovery] = scrape["http_sd_configs"]
    assert discovery["url"] == f"http://{LOOPBACK}:{PORT}/sd"


@pytest.mark.prometheus
def test_prometheus_takes_its_configuration() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"],
        cwd=DASHBOARDS / "prometheus",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: prometheus.yml is valid" in done.stdout
