//! Filters of messages by their properties: SQL92 as Apache RocketMQ has it (`rocketmq-filter`).
//!
//! An [`Expression`] is compiled once for a subscription and then evaluated over the properties text of each message, as it lies in the
//! log. Pure: no I/O, no clock, no thread.
//! - What the reference's filter makes of an expression and of a message is made of them here: `tests/java_results.tsv` holds its
//!   answers to some thousand questions.
//! - A message passes only when the whole expression is true; not when it is unknown, and not when evaluating it fails.

mod bloom;
mod error;
mod number;
mod parser;
mod program;
#[cfg(test)]
mod tests;
mod token;

use crate::common::subscription::MAX_EXPRESSION_BYTES;

pub use bloom::Bloom;
pub use error::{Position, SyntaxError};

use program::Program;

/// A compiled SQL92 expression.
#[derive(Clone, Debug)]
pub struct Expression {
    program: Program,
    ignored_from: Option<Position>,
}

/// What an expression makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// True: the message passes.
    Match,
    /// False or unknown.
    NoMatch,
    /// A value could not be converted: where the reference throws. The message does not pass.
    Failed,
}

impl Expression {
    /// Compiles an expression of at most [`MAX_EXPRESSION_BYTES`].
    ///
    /// # Errors
    /// [`SyntaxError`]: where, and what was expected.
    pub fn compile(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_EXPRESSION_BYTES {
            let problem = format!("the expression has {} bytes, at most {MAX_EXPRESSION_BYTES} are served", text.len());
            return Err(SyntaxError::new(Position { line: 1, column: 1 }, problem));
        }
        let parsed = parser::parse(text)?;
        Ok(Self { program: parsed.program, ignored_from: parsed.rest })
    }

    /// Whether a message of this properties text passes.
    pub fn matches(&self, properties: &str) -> bool {
        self.evaluate(properties) == Outcome::Match
    }

    /// Evaluates the expression over a properties text.
    pub fn evaluate(&self, properties: &str) -> Outcome {
        match self.program.evaluate(properties) {
            Ok(Some(true)) => Outcome::Match,
            Ok(_) => Outcome::NoMatch,
            Err(program::Failed) => Outcome::Failed,
        }
    }

    /// Where the expression ends although the text goes on. The reference ignores what follows, and so it is here; somebody should be
    /// told.
    pub fn ignored_from(&self) -> Option<Position> {
        self.ignored_from
    }

    /// Number of parts to evaluate, at most: what an evaluation costs, about 10 ns each besides reading the properties.
    pub fn parts(&self) -> usize {
        let program = &self.program;
        program.nodes.len() + program.names.len()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let program = &self.program;
        size_of_val(&*program.nodes)
            + size_of_val(&*program.operands)
            + size_of_val(&*program.elements)
            + size_of_val(&*program.names)
            + program.texts.len()
    }
}
