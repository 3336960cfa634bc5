//! Tells the linker that the functions of Node are found when the module is loaded.

fn main() {
    napi_build::setup();
}
