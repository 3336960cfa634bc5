//! Messages of the search for the most expensive ones, varied by the fuzzer: whatever a message is, its reader needs no more
//! memory than a small multiple of its bytes, and reads it alike in both formats.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use std::sync::LazyLock;
use tidewire_testkit::search::{Candidate, Grammar, Random};
use tidewire_wire::envelope::SystemType;
use tidewire_wire::format::{Format, json_to_msgpack};
use tidewire_wire::session::{Now, PublishRequest, ServerProfile, ServerSession, SystemEvent};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(Grammar::load);

fuzz_target!(|data: &[u8]| {
    let Some((kind, steps)) = data.split_first() else {
        return;
    };
    let system = SystemType::ALL[usize::from(*kind) % SystemType::ALL.len()];
    let mut candidate = Candidate::bare(system.as_str());
    for step in steps.chunks(2).take(16) {
        let seed = step
            .iter()
            .fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        candidate = candidate.varied(&GRAMMAR, system, &mut Random::new(seed));
    }
    let text = candidate.text(BYTES_MAX).into_bytes();
    let mut packed = Vec::new();
    json_to_msgpack(&text, &mut packed).expect("JSON that is not too deep");
    let system = if candidate.batch > 0 {
        SystemType::Batch
    } else {
        system
    };
    let events = [(Format::Json, &text), (Format::MessagePack, &packed)].map(|(format, bytes)| {
        let before = ALLOCATED.current_usage();
        ALLOCATED.reset_peak_usage();
        let mut session = ServerSession::new(format, false, Now::default());
        let event = session.handle_system(&ServerProfile::default(), system, format, bytes);
        let mut scratch = Vec::new();
        if event == SystemEvent::Publish {
            drop(PublishRequest::parse(format, bytes, &mut scratch));
        }
        let peak = ALLOCATED.peak_usage().saturating_sub(before);
        assert!(
            peak <= TIMES_MAX * bytes.len() + FIXED_BYTES,
            "{peak} bytes for {}",
            bytes.len()
        );
        event
    });
    if candidate.batch == 0 {
        // Numbers and escapes of a filter are spelled as they came.
        let [json, packed] = events.map(|event| std::mem::discriminant(&event));
        assert_eq!(json, packed);
    }
});

const BYTES_MAX: usize = 64 * 1024;
/// A text of MessagePack that JSON has to escape has six times as many bytes, in a buffer that doubles.
const TIMES_MAX: usize = 24;
const FIXED_BYTES: usize = 64 * 1024;
