//! Errors: rules of the connection, which ends when a peer breaks one, and rules of one stream, which is reset.

use std::fmt;

/// The code of RST_STREAM and GOAWAY (RFC 9113, section 7); any number is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The end, without an error.
    pub const NO_ERROR: Self = Self(0);
    /// A rule of the protocol is broken.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// A fault of the sender itself.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More data than the window allowed.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// The settings were not confirmed in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame for a stream that is over.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a size that it may not have.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The stream was not processed.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(8);
    /// The tables of compressed headers differ.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The connection of a CONNECT request has ended.
    pub const CONNECT_ERROR: Self = Self(10);
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// HTTP/1.1 is wanted.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// Its place among [`ErrorCode::NAMES`]; the last one for a number without a name.
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 as usize).min(Self::NAMES.len() - 1)
    }

    /// The names of the codes in the order of their numbers, and one for all others.
    pub const NAMES: [&'static str; 15] = [
        "no-error",
        "protocol-error",
        "internal-error",
        "flow-control-error",
        "settings-timeout",
        "stream-closed",
        "frame-size-error",
        "refused-stream",
        "cancel",
        "compression-error",
        "connect-error",
        "enhance-your-calm",
        "inadequate-security",
        "http-1-1-required",
        "unknown-error",
    ];
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::NAMES[self.index()])
    }
}

/// A rule of the connection that the peer breaks. The connection must be closed, after a GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The received bytes do not begin with the preface of HTTP/2: for a client, with a SETTINGS frame.
    #[error("the peer does not begin with the preface of HTTP/2")]
    BadPreface,
    /// A frame is longer than 16,384 bytes, or has another length than its type.
    #[error("a frame has a length that it may not have")]
    BadFrameSize,
    /// A frame where it may not be, such as one of a stream for the connection.
    #[error("a frame is where it may not be")]
    UnexpectedFrame,
    /// The padding of a frame is longer than the frame.
    #[error("the padding of a frame is longer than the frame")]
    BadPadding,
    /// A setting has a value that it may not have.
    #[error("a setting has a value that it may not have")]
    BadSetting,
    /// A stream with a number that is not the peer's next.
    #[error("a stream has a number that is not the next")]
    BadStream,
    /// A frame for a stream that the peer has ended.
    #[error("a frame for a stream that its sender has ended")]
    StreamClosed,
    /// A header block that cannot be read (RFC 7541).
    #[error("a header block cannot be read")]
    BadHeaderBlock,
    /// A header block that is longer than the limit, or in too many pieces.
    #[error("the headers are longer than the limit, or in too many pieces")]
    HeadersTooLong,
    /// More data than the window of the connection allows.
    #[error("more data than the window of the connection allows")]
    WindowExceeded,
    /// A window of the connection grows beyond its limit.
    #[error("a window grows beyond 2,147,483,647 bytes")]
    WindowOverflow,
    /// Too many frames that bring nothing: resets, pings, settings and empty frames.
    #[error("too many frames that bring nothing")]
    Flood,
}

impl Fault {
    /// The code of the GOAWAY.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::BadFrameSize => ErrorCode::FRAME_SIZE_ERROR,
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
            Self::BadHeaderBlock => ErrorCode::COMPRESSION_ERROR,
            Self::HeadersTooLong | Self::Flood => ErrorCode::ENHANCE_YOUR_CALM,
            Self::WindowExceeded | Self::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
            Self::BadPreface
            | Self::UnexpectedFrame
            | Self::BadPadding
            | Self::BadSetting
            | Self::BadStream => ErrorCode::PROTOCOL_ERROR,
        }
    }

    /// Its name in a report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadPreface => "not-http2",
            Self::BadFrameSize => "bad-frame-size",
            Self::UnexpectedFrame => "unexpected-frame",
            Self::BadPadding => "bad-padding",
            Self::BadSetting => "bad-setting",
            Self::BadStream => "bad-stream",
            Self::StreamClosed => "frame-after-end",
            Self::BadHeaderBlock => "bad-header-block",
            Self::HeadersTooLong => "head-too-long",
            Self::WindowExceeded => "window-exceeded",
            Self::WindowOverflow => "window-overflow",
            Self::Flood => "frame-flood",
        }
    }
}

/// A rule that the message of one stream breaks. The stream was reset; the others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StreamFault {
    /// A field that HTTP/2 does not allow, or a pseudo-header that is missing, unknown or out of place.
    #[error("a header is not allowed in HTTP/2, or one that it needs is missing")]
    BadHeader,
    /// `Content-Length` is not a number of bytes, or occurs with different values.
    #[error("Content-Length is not one number of bytes")]
    BadContentLength,
    /// The body is shorter than `Content-Length` announced.
    #[error("the body is shorter than Content-Length announced")]
    TruncatedBody,
    /// The body is longer than `Content-Length` announced.
    #[error("the body is longer than Content-Length announced")]
    SurplusBody,
    /// More data than the window of the stream allows.
    #[error("more data than the window of the stream allows")]
    WindowExceeded,
    /// The window of the stream grows beyond its limit.
    #[error("a window grows beyond 2,147,483,647 bytes")]
    WindowOverflow,
    /// The window of the stream grows by nothing.
    #[error("a window grows by nothing")]
    EmptyWindow,
    /// The stream depends on itself.
    #[error("a stream depends on itself")]
    BadPriority,
    /// Trailers are not the end of their message.
    #[error("headers after a body that are not its end")]
    BadTrailer,
    /// More streams at a time than allowed.
    #[error("more streams at a time than allowed")]
    TooManyStreams,
    /// A frame for a stream that its sender has ended.
    #[error("a frame for a stream that is over")]
    StreamClosed,
    /// A PRIORITY frame that is not 5 bytes long.
    #[error("a frame has a length that it may not have")]
    BadFrameSize,
}

impl StreamFault {
    /// The code of the RST_STREAM.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::WindowExceeded | Self::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
            Self::TooManyStreams => ErrorCode::REFUSED_STREAM,
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
            Self::BadFrameSize => ErrorCode::FRAME_SIZE_ERROR,
            Self::BadHeader
            | Self::BadContentLength
            | Self::TruncatedBody
            | Self::SurplusBody
            | Self::EmptyWindow
            | Self::BadPriority
            | Self::BadTrailer => ErrorCode::PROTOCOL_ERROR,
        }
    }

    /// Its name in a report: that of the same fault in HTTP/1.1, where there is one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadHeader => "bad-header",
            Self::BadContentLength => "bad-content-length",
            Self::TruncatedBody => "truncated-body",
            Self::SurplusBody => "surplus-data",
            Self::WindowExceeded => "window-exceeded",
            Self::WindowOverflow => "window-overflow",
            Self::EmptyWindow => "empty-window-update",
            Self::BadPriority => "bad-priority",
            Self::BadTrailer => "bad-trailer",
            Self::TooManyStreams => "too-many-streams",
            Self::StreamClosed => "frame-after-end",
            Self::BadFrameSize => "bad-frame-size",
        }
    }
}
