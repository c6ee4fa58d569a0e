"""Where spans go: OpenTelemetry's SDK and its exporter, of the extra `curlew[otel]`.

Imported where the setting `otel_traces` is on; nothing else imports OpenTelemetry at a node's
start. Address, headers, name of the service, sampler and sizes come from the variables `OTEL_*`
that every SDK reads. Spans are exported on a thread; what it cannot keep up with is left out.
"""

from typing import Final

from app.runtime.version import program_version

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Tracer
except ImportError as error:  # pragma: no cover - the tests have the extra
    raise ImportError(
        "otel_traces is on, and OpenTelemetry is not installed; "
        "install it with: pip install 'curlew[otel]'"
    ) from error

SERVICE_NAME: Final = "curlew"
"""Where `OTEL_SERVICE_NAME` says nothing else."""


class SpanExport:
    """Makes spans and sends them away, until it is closed."""

    def __init__(self, node_id: str, processor: SpanProcessor | None = None) -> None:
        """`processor` takes the place of the one that sends to the collector."""
        given = OTELResourceDetector().detect().attributes
        named = {"service.name": SERVICE_NAME, "service.instance.id": node_id, **given}
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer: Tracer = self._provider.get_tracer("curlew", program_version())

    def close(self) -> None:
        """Send what waits. Blocks."""
        self._provider.shutdown()
