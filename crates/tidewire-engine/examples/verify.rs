//! Prints what it costs to check one HS256 token. Run it with `--release`.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use serde_json::json;
use std::hint::black_box;
use std::time::Instant;
use tidewire_engine::auth::{AuthConfig, KeyMaterial, Verifier};
use tidewire_engine::token::{SigningKey, sign};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let material = KeyMaterial::Hs256(vec![7; 32]);
    let claims = json!({"sub": "user-000001", "exp": 2_000_000_000, "iat": 1_700_000_000});
    let token = sign(&claims, &SigningKey::new(&material)?, None)?;
    let verifier = Verifier::new(&AuthConfig::new(material))?;
    for _ in 0..5 {
        let started = Instant::now();
        for _ in 0..ROUNDS {
            black_box(verifier.verify(black_box(&token), 1_800_000_000)?);
        }
        let nanoseconds = started.elapsed().as_nanos() / u128::from(ROUNDS);
        println!("{nanoseconds} ns per token of {} bytes", token.len());
    }
    Ok(())
}

const ROUNDS: u32 = 200_000;
