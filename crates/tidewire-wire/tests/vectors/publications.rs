//! Publications: what is read from them, and that they are written as the vectors have them.

use super::messages;
use tidewire_testkit::vectors::load;
use tidewire_testkit::vectors::messages::{Case, Form, Kind};
use tidewire_wire::envelope::{Category, Priority, PublicationHeader, pack_payload, parse_epoch};

pub(crate) fn run(file: &str) {
    messages::run(file);
    let mut written = 0;
    for case in load::<Case>(file) {
        if case.kind == Kind::Application {
            check_written(&case);
            written += 1;
        }
    }
    assert!(written > 0);
}

/// One of the cases is a publication as a server writes it.
pub(crate) fn run_binary(file: &str) {
    messages::run(file);
    let cases = load::<Case>(file);
    let written = cases.iter().find(|case| case.name == "a publication");
    check_written(written.expect("a publication"));
}

/// The first form is JSON and the second MessagePack.
fn check_written(case: &Case) {
    let envelope = case.envelope.as_ref().and_then(Option::as_ref);
    let envelope = envelope.expect("a publication's envelope");
    let priority = envelope.pri.and_then(Priority::from_number);
    let epoch = envelope.e.as_deref().and_then(parse_epoch);
    let header = PublicationHeader {
        category: Category::parse(envelope.c.as_deref().expect("a category")).expect("c"),
        t: &envelope.t,
        topic: envelope.tp.as_deref(),
        position: epoch.zip(envelope.o),
        id: envelope.id.as_deref(),
        priority: priority.unwrap_or_default(),
        delivery: envelope.d.map(|d| (d, envelope.rd == Some(true))),
        correlation_id: envelope.cid.as_deref(),
        binary: envelope.b == Some(true),
    };
    let [Form::Text(text), Form::Binary(binary), ..] = &case.frames[..] else {
        panic!("{}: the forms are in another order", case.name)
    };
    let payload = envelope.p.to_string();
    let mut out = Vec::new();
    header.write_json(payload.as_bytes(), &mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        text.as_str(),
        "{}",
        case.name
    );
    let mut packed = Vec::new();
    pack_payload(payload.as_bytes(), header.binary, &mut packed).expect("a payload that is JSON");
    out.clear();
    header.write_msgpack(&packed, &mut out);
    assert_eq!(out, binary[..], "{}", case.name);
}
