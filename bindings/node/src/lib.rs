//! The native module of the npm package `tidewire`: a translation layer without rules of its own.
//!
//! - `errors`: the one place where Rust errors become JavaScript errors
//! - `lab`: the load generator
//! - `log`: what the engine logs
//! - `options`: the options of a server, in the spelling of JavaScript
//! - `server`: the engine
//! - `utilities`: functions that are useful without a server

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "functions are given to JavaScript in other builds alone"
    )
)]

mod content;
mod errors;
mod lab;
mod log;
mod options;
mod server;
mod utilities;
