//! Events of a socket, and results of reading it.

/// The reported events of a socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has ended its side, or there is an error to be read.
    pub(crate) ending: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// The number of bytes read; with `more`, further bytes may be there.
    Data { bytes: usize, more: bool },
    /// Nothing now.
    WouldBlock,
    /// The peer sends no more.
    End,
}
