//! Errors of responses.

use crate::chunked::ChunkError;

/// A rule that a response breaks, or a limit. Always the server's fault, or that of something between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ResponseError {
    /// The received bytes do not start with a status line of HTTP.
    #[error("the response does not begin with a status line of HTTP/1.1")]
    BadStatusLine,
    /// A version other than 1.0 and 1.1.
    #[error("the response has an HTTP version other than 1.0 and 1.1")]
    UnsupportedVersion,
    /// A header line is not a name, a colon and a value.
    #[error("a header line of the response is not a name, a colon and a value")]
    BadHeader,
    /// More bytes than [`Limits::head_bytes_max`](super::Limits::head_bytes_max).
    #[error("the head of the response is longer than the limit")]
    HeadTooLong,
    /// More header lines than [`HEADERS_MAX`](super::HEADERS_MAX).
    #[error("the response has more than 128 header lines")]
    TooManyHeaders,
    /// More 1xx responses than [`Limits::interim_max`](super::Limits::interim_max).
    #[error("more interim (1xx) responses than the limit, and no final one")]
    TooManyInterims,
    /// 101 to a request that did not ask for an upgrade.
    #[error("101 Switching Protocols to a request that asked for no upgrade")]
    UnaskedUpgrade,
    /// `Content-Length` is not a number of bytes.
    #[error("Content-Length is not a number of bytes")]
    BadContentLength,
    /// Several `Content-Length` that differ.
    #[error("the response has several values of Content-Length that differ")]
    ConflictingLengths,
    /// `Transfer-Encoding` is not a list of codings, or has chunked twice.
    #[error("Transfer-Encoding is not a list of codings with chunked once")]
    BadTransferEncoding,
    /// A chunk without a size in hexadecimal digits, or one that does not end where its size requires.
    #[error("a chunk has no size in hexadecimal digits, or does not end where its size says")]
    BadChunk,
    /// The size of a chunk does not fit into 64 bits.
    #[error("the size of a chunk does not fit into 64 bits")]
    ChunkSizeOverflow,
    /// The size and the extensions of a chunk have more than 4,096 bytes.
    #[error("the size line of a chunk is longer than 4,096 bytes")]
    ChunkLineTooLong,
    /// A trailer line is not a name, a colon and a value.
    #[error("a trailer line is not a name, a colon and a value")]
    BadTrailer,
    /// More bytes than [`Limits::trailer_bytes_max`](super::Limits::trailer_bytes_max).
    #[error("the trailers are longer than the limit")]
    TrailersTooLong,
    /// The connection ended inside a head.
    #[error("the connection ended before the head of the response was whole")]
    TruncatedHead,
    /// The connection ended before as many bytes as `Content-Length` announced.
    #[error("the connection ended with fewer bytes of body than Content-Length announced")]
    TruncatedBody,
    /// The connection ended before the last chunk and its trailers.
    #[error("the connection ended before the last chunk")]
    TruncatedChunks,
    /// A body that the end of the connection delimits, and a connection that did not end in order.
    #[error("the end of the connection delimits the body, but the connection was cut")]
    UncleanClose,
}

impl ResponseError {
    /// A stable name for reports, in kebab case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BadStatusLine => "bad-status-line",
            Self::UnsupportedVersion => "unsupported-version",
            Self::BadHeader => "bad-header",
            Self::HeadTooLong => "head-too-long",
            Self::TooManyHeaders => "too-many-headers",
            Self::TooManyInterims => "too-many-interims",
            Self::UnaskedUpgrade => "unasked-upgrade",
            Self::BadContentLength => "bad-content-length",
            Self::ConflictingLengths => "conflicting-lengths",
            Self::BadTransferEncoding => "bad-transfer-encoding",
            Self::BadChunk => "bad-chunk",
            Self::ChunkSizeOverflow => "chunk-size-overflow",
            Self::ChunkLineTooLong => "chunk-line-too-long",
            Self::BadTrailer => "bad-trailer",
            Self::TrailersTooLong => "trailers-too-long",
            Self::TruncatedHead => "truncated-head",
            Self::TruncatedBody => "truncated-body",
            Self::TruncatedChunks => "truncated-chunks",
            Self::UncleanClose => "unclean-close",
        }
    }
}

impl From<ChunkError> for ResponseError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Malformed => Self::BadChunk,
            ChunkError::SizeOverflow => Self::ChunkSizeOverflow,
            ChunkError::LineTooLong => Self::ChunkLineTooLong,
            ChunkError::Trailer => Self::BadTrailer,
            ChunkError::TrailersTooLong => Self::TrailersTooLong,
        }
    }
}
