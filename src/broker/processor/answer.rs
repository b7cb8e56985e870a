//! Answers of requests that are served in one go: a function returns what it has to say, [`send`] says it.

use crate::net::responder::Responder;
use crate::remoting::code::response;
use crate::remoting::command::Body;
use crate::remoting::ext::FieldError;

/// What a request gets.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Fields of the header.
    pub(crate) header: Vec<(String, String)>,
    /// Text of a success that needs one.
    pub(crate) remark: Option<String>,
    /// Body.
    pub(crate) body: Body,
}

impl Answer {
    /// A body.
    pub(crate) fn json(body: String) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// With a header field.
    #[must_use]
    pub(crate) fn field(mut self, name: &str, value: impl Into<String>) -> Self {
        self.header.push((name.to_owned(), value.into()));
        self
    }
}

/// Why a request is not served: code and text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) i32, pub(crate) String);

/// A header field is missing or malformed.
impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self(response::SYSTEM_ERROR, error.to_string())
    }
}

/// Something failed, or a body cannot be read.
impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(response::SYSTEM_ERROR, text)
    }
}

/// What a request that is served in one go comes to.
pub(crate) type Outcome = Result<Answer, Refusal>;

/// Answers.
pub(crate) fn send(responder: Responder, outcome: Outcome) {
    match outcome {
        Ok(answer) => responder.reply(response::SUCCESS, answer.remark.as_deref(), &answer.header, answer.body),
        Err(Refusal(code, text)) => responder.error(code, &text),
    }
}
