//! Errors of requests, and the status with which each is rejected.

use crate::chunked::ChunkError;

/// A rule that a request breaks, or a limit. Always the peer's fault; the same request fails again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestError {
    /// 400: what arrived does not begin with a method, a target and a version.
    #[error("the request does not begin with a method, a target and a version")]
    BadRequestLine,
    /// 501: a method longer than any that exists.
    #[error("the method is longer than 32 bytes")]
    MethodTooLong,
    /// 414: more bytes than [`Limits::request_line_bytes_max`](super::Limits::request_line_bytes_max).
    #[error("the request line is longer than the limit")]
    TargetTooLong,
    /// 505: HTTP, but neither 1.0 nor 1.1.
    #[error("the HTTP version is neither 1.0 nor 1.1")]
    UnsupportedVersion,
    /// 400: a header line is not a name, a colon and a value, or is folded.
    #[error("a header line is not a name, a colon and a value")]
    BadHeader,
    /// 400: a line of the head ends with LF alone.
    #[error("a line ends with LF alone")]
    BareLineFeed,
    /// 431: more bytes than [`Limits::head_bytes_max`](super::Limits::head_bytes_max).
    #[error("the head of the request is longer than the limit")]
    HeadTooLong,
    /// 431: more header lines than [`HEADERS_MAX`](super::HEADERS_MAX).
    #[error("the request has more than 100 header lines")]
    TooManyHeaders,
    /// 400: HTTP/1.1 without `Host`, or with several, or with one that is no host.
    #[error("Host is missing, given twice or not a host")]
    BadHost,
    /// 400: `Content-Length` is not a number of bytes.
    #[error("Content-Length is not a number of bytes")]
    BadContentLength,
    /// 400: `Content-Length` is given twice.
    #[error("Content-Length is given twice")]
    ConflictingLengths,
    /// 400: both `Content-Length` and `Transfer-Encoding`, or the latter in HTTP/1.0.
    #[error(
        "Transfer-Encoding with Content-Length or in HTTP/1.0: the end of the body is ambiguous"
    )]
    AmbiguousLength,
    /// 400: `Transfer-Encoding` without chunked as its last coding.
    #[error("chunked is not the last coding of Transfer-Encoding, once")]
    BadTransferEncoding,
    /// 501: a transfer coding other than chunked.
    #[error("the only transfer coding is chunked")]
    UnsupportedCoding,
    /// 417: `Expect` asks for something other than `100-continue`.
    #[error("the only expectation is 100-continue")]
    UnknownExpectation,
    /// 413: more bytes than [`Limits::body_bytes_max`](super::Limits::body_bytes_max).
    #[error("the body is larger than the limit")]
    BodyTooLarge,
    /// 400: a chunk without a size in hexadecimal digits, or one that does not end where its size requires.
    #[error("a chunk has no size in hexadecimal digits, or does not end where its size says")]
    BadChunk,
    /// 400: the size of a chunk does not fit into 64 bits.
    #[error("the size of a chunk does not fit into 64 bits")]
    ChunkSizeOverflow,
    /// 400: the size and the extensions of a chunk have more than 4,096 bytes.
    #[error("the size line of a chunk is longer than 4,096 bytes")]
    ChunkLineTooLong,
    /// 400: a trailer line is not a name, a colon and a value.
    #[error("a trailer line is not a name, a colon and a value")]
    BadTrailer,
    /// 431: more bytes than [`Limits::trailer_bytes_max`](super::Limits::trailer_bytes_max).
    #[error("the trailers are longer than the limit")]
    TrailersTooLong,
    /// 400: the connection ended inside a head.
    #[error("the connection ended before the head of the request was whole")]
    TruncatedHead,
    /// 400: the connection ended inside a body.
    #[error("the connection ended before the body of the request was whole")]
    TruncatedBody,
}

impl RequestError {
    /// A stable name for counters and logs, in kebab case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BadRequestLine => "bad-request-line",
            Self::MethodTooLong => "method-too-long",
            Self::TargetTooLong => "target-too-long",
            Self::UnsupportedVersion => "unsupported-version",
            Self::BadHeader => "bad-header",
            Self::BareLineFeed => "bare-line-feed",
            Self::HeadTooLong => "head-too-long",
            Self::TooManyHeaders => "too-many-headers",
            Self::BadHost => "bad-host",
            Self::BadContentLength => "bad-content-length",
            Self::ConflictingLengths => "conflicting-lengths",
            Self::AmbiguousLength => "ambiguous-length",
            Self::BadTransferEncoding => "bad-transfer-encoding",
            Self::UnsupportedCoding => "unsupported-coding",
            Self::UnknownExpectation => "unknown-expectation",
            Self::BodyTooLarge => "body-too-large",
            Self::BadChunk => "bad-chunk",
            Self::ChunkSizeOverflow => "chunk-size-overflow",
            Self::ChunkLineTooLong => "chunk-line-too-long",
            Self::BadTrailer => "bad-trailer",
            Self::TrailersTooLong => "trailers-too-long",
            Self::TruncatedHead => "truncated-head",
            Self::TruncatedBody => "truncated-body",
        }
    }

    /// The status to answer with before the connection is closed.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::MethodTooLong | Self::UnsupportedCoding => 501,
            Self::TargetTooLong => 414,
            Self::UnsupportedVersion => 505,
            Self::HeadTooLong | Self::TooManyHeaders | Self::TrailersTooLong => 431,
            Self::UnknownExpectation => 417,
            Self::BodyTooLarge => 413,
            _ => 400,
        }
    }
}

impl From<ChunkError> for RequestError {
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
