//! Why a call of the client did not do what was asked.

use crate::net::connection::InvokeError;

/// An error of the client library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The request got no answer: connection, time-out.
    Invoke(InvokeError),
    /// The server refused: its address, the code of the protocol, its text.
    Response {
        /// Server that answered.
        address: String,
        /// Response code of the protocol.
        code: i32,
        /// Text of the server; may be empty.
        remark: String,
    },
    /// No broker for the topic: topic and reason.
    NoRoute(String, String),
    /// The call itself is wrong; nothing was sent.
    Invalid(String),
    /// The answer does not parse: the server's address, and what is wrong.
    Answer(String, String),
    /// The time of the whole call ran out: milliseconds, and the last error met on the way.
    Timeout(u64, String),
    /// A local file or thread failed.
    Local(String),
    /// The client has been shut down.
    Closed,
}

impl ClientError {
    /// Response code of the protocol, when a server refused.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Response { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invoke(error) => error.fmt(f),
            Self::Response { address, code, remark } => {
                // Texts of Java brokers go on with a link to a page; one line is enough.
                let line = remark.lines().next().unwrap_or_default();
                write!(f, "{address} answered code {code}: {line}")
            }
            Self::NoRoute(topic, reason) => write!(f, "no route to topic {topic}: {reason}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Answer(address, what) => write!(f, "answer of {address} is not understood: {what}"),
            Self::Timeout(ms, last) if last.is_empty() => write!(f, "not done within {ms} ms"),
            Self::Timeout(ms, last) => write!(f, "not done within {ms} ms; last: {last}"),
            Self::Local(what) => f.write_str(what),
            Self::Closed => f.write_str("the client has been shut down"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invoke(error) => Some(error),
            _ => None,
        }
    }
}

impl From<InvokeError> for ClientError {
    fn from(error: InvokeError) -> Self {
        Self::Invoke(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line() {
        let error = ClientError::Response { address: "a:1".into(), code: 17, remark: "topic[x] not exist\nSee http://…".into() };
        assert_eq!(error.to_string(), "a:1 answered code 17: topic[x] not exist");
        assert_eq!(error.code(), Some(17));
        assert_eq!(ClientError::Closed.code(), None);
    }
}
