//! The readers of both sides: the vectors of `protocol/vectors`, and whatever else can be generated, cut at every place.

mod generated;
mod http2;
mod http2_faults;
mod http2_limits;
mod requests;
mod responses;

/// The pieces of `bytes` between the places `cuts`, which ascend.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut start = 0;
    let mut found = Vec::new();
    for &end in cuts.iter().chain([&bytes.len()]) {
        found.push(&bytes[start..end]);
        start = end;
    }
    found
}

/// No cut, one cut at each place, and every byte by itself. A long input is not cut at every place: that would take a
/// time that grows with its square.
fn ways_to_cut(length: usize) -> Vec<Vec<usize>> {
    let step = (length / 300).max(1);
    let mut ways = vec![Vec::new()];
    ways.extend((1..length).step_by(step).map(|place| vec![place]));
    ways.push((1..length).collect());
    ways
}
