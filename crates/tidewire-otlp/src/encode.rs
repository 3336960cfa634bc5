//! Spans as the request of OTLP that carries them.

use crate::config::ExporterConfig;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind as WireKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as WireSpan, Status};
use prost::Message as _;
use tidewire_engine::{Span, SpanKind, SpanValue};

/// The body of a request with these spans.
pub(crate) fn request(resource: &Resource, spans: Vec<Span>) -> Vec<u8> {
    let spans = ScopeSpans {
        scope: Some(InstrumentationScope {
            name: "tidewire".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        }),
        spans: spans.into_iter().map(wire_span).collect(),
        ..ScopeSpans::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec()
}

/// The sender of the spans.
pub(crate) fn resource(config: &ExporterConfig) -> Resource {
    let own = [
        ("service.name", config.service_name.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("process.pid", std::process::id().to_string()),
    ];
    let is_given = |key: &str| config.attributes.iter().any(|(given, _)| given == key);
    let own = own.into_iter();
    // The configured service name replaces a `service.name` among the given attributes.
    let own = own.filter(|(key, _)| *key == "service.name" || !is_given(key));
    let own = own.map(|(key, value)| (key.to_owned(), value));
    let given = config.attributes.iter();
    let given = given.filter(|(key, _)| key != "service.name").cloned();
    Resource {
        attributes: own
            .chain(given)
            .map(|(key, value)| attribute(key, Value::StringValue(value)))
            .collect(),
        ..Resource::default()
    }
}

fn wire_span(span: Span) -> WireSpan {
    let attributes = span.attributes.into_iter();
    let mut attributes: Vec<KeyValue> = attributes
        .map(|(name, value)| attribute(name.to_owned(), wire_value(value)))
        .collect();
    let status = span.failure.map(|kind| {
        attributes.push(attribute(
            "error.type".to_owned(),
            Value::StringValue(kind.into_owned()),
        ));
        Status {
            code: StatusCode::Error.into(),
            ..Status::default()
        }
    });
    let kind = match span.kind {
        SpanKind::Server => WireKind::Server,
        SpanKind::Client => WireKind::Client,
    };
    WireSpan {
        trace_id: span.context.trace_id.to_vec(),
        span_id: span.context.span_id.to_vec(),
        parent_span_id: span.parent.map(Vec::from).unwrap_or_default(),
        flags: u32::from(span.context.is_sampled),
        name: span.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: span.start_unix_ns,
        end_time_unix_nano: span.end_unix_ns,
        attributes,
        status,
        ..WireSpan::default()
    }
}

fn wire_value(value: SpanValue) -> Value {
    match value {
        SpanValue::Text(text) => Value::StringValue(text),
        SpanValue::Integer(number) => Value::IntValue(number),
    }
}

fn attribute(key: String, value: Value) -> KeyValue {
    KeyValue {
        key,
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
