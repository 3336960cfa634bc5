//! Tests that end by a number of connections or messages, and not by a time.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use crate::common::{Conduct, Server, options};
use tidewire_load::Report;
use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, run};
use tidewire_load::worker::websocket::profile::Profile;

fn report(options: &BenchOptions) -> Report {
    run(options, &mut (), &AtomicBool::new(false)).unwrap()
}

#[test]
fn connections_are_opened_again_as_often_as_asked() {
    let server = Server::raw(Conduct::Sink);
    let mut options = options(&server, TestKind::RapidReconnect, Profile::Raw);
    options.tiers = vec![5];
    options.cycles = Some(7);
    let result = &report(&options).results[0];
    assert_eq!(result.failed, Some(0), "{result:#?}");
    let opened = "35 connections were opened and closed, 5 at a time.";
    assert!(
        result.notes.iter().any(|note| note == opened),
        "{:?}",
        result.notes
    );
}

#[test]
fn a_test_ends_when_each_connection_has_sent_its_messages() {
    for (conduct, test) in [
        (Conduct::Sink, TestKind::Throughput),
        (Conduct::Echo, TestKind::Echo),
    ] {
        let server = Server::raw(conduct);
        let mut options = options(&server, test, Profile::Raw);
        options.tiers = vec![5];
        options.messages = Some(1_001);
        let result = &report(&options).results[0];
        let messages = result.messages.unwrap();
        let counts = (messages.offered, messages.confirmed, messages.lost);
        assert_eq!(counts, (5_005, 5_005, 0), "{result:#?}");
        options.messages = Some(0);
        let refused = run(&options, &mut (), &AtomicBool::new(false)).unwrap_err();
        assert!(refused.to_string().contains("at least 1"), "{refused}");
        options.messages = Some(1_001);
        options.rate_per_s = Some(100.0);
        let refused = run(&options, &mut (), &AtomicBool::new(false))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("remove the rate"), "{refused}");
    }
}
