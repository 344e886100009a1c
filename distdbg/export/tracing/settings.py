"""OTEL_* variables that are read here; endpoints, headers ... are left to the exporters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")
Protocol = Literal["http/protobuf", "grpc"]
_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How one signal is queued and sent."""

    delay_ns: int
    """How old a batch gets before it is sent."""
    most_queued: int
    most_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    signals: frozenset[Signal]
    protocols: Mapping[Signal, Protocol]
    spans: Batching
    logs: Batching
    metrics_ns: int
    """How often metrics are sent."""
    slow_ns: int
    wrong: tuple[str, ...] = ()
    """What did not fit and was passed over: one warning each."""


def read_settings(asked: frozenset[str], environ: Mapping[str, str], *, slow_s: float) -> Settings:
    """By the environment; OpenTelemetry wants what does not fit to be said and passed over."""
    wrong: list[str] = []
    signals: frozenset[Signal] = frozenset(signal for signal in SIGNALS if signal in asked)

    def number(name: str, default: int, least: int = 1) -> int:
        text = environ.get(name, "").strip()
        if not text:
            return default
        try:
            value = int(float(text))
        except (ValueError, OverflowError):
            value = -1
        if value < least:
            wrong.append(f"{name}={text!r} is not a number from {least}; {default} is taken")
            return default
        return value

    def batching(prefix: str, delay_ms: int) -> Batching:
        most_queued = number(f"{prefix}_MAX_QUEUE_SIZE", 2048)
        return Batching(
            delay_ns=number(f"{prefix}_SCHEDULE_DELAY", delay_ms, 0) * _MS,
            most_queued=most_queued,
            most_batch=min(number(f"{prefix}_MAX_EXPORT_BATCH_SIZE", 512), most_queued),
        )

    protocols: dict[Signal, Protocol] = {}
    for signal in SIGNALS:
        name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
        text = environ.get(name) or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        if text == "grpc":
            protocols[signal] = "grpc"
            continue
        protocols[signal] = "http/protobuf"
        if text != "http/protobuf" and signal in signals:
            wrong.append(f"OTLP over {text!r} is not spoken here; http/protobuf is taken")
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        signals = frozenset()
    for signal in SIGNALS:
        if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none":
            signals -= {signal}
    return Settings(
        signals=signals,
        protocols=protocols,
        spans=batching("OTEL_BSP", 5000),
        logs=batching("OTEL_BLRP", 1000),
        metrics_ns=number("OTEL_METRIC_EXPORT_INTERVAL", 60_000) * _MS,
        slow_ns=int(slow_s * 1e9),
        wrong=tuple(dict.fromkeys(wrong)),
    )
