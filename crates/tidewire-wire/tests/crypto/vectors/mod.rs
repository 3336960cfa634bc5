//! The test vectors of encryption and signatures, run by both sides of this crate.

mod encryption;
mod signatures;

#[test]
fn encryption() {
    encryption::run("encryption");
}

#[test]
fn signatures() {
    signatures::run("signatures");
}
