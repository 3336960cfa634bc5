//! Empty: this crate only names the package that carries the C++ source of uWebSockets.
