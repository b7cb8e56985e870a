//! Why an expression is none.

/// A place in an expression, counted in characters from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// Where the byte at `at` stands in `text`. Lines end with `\n`, `\r` or both.
    pub(super) fn of(text: &str, at: usize) -> Self {
        let before = &text[..at];
        let line_start = before.rfind(['\n', '\r']).map_or(0, |end| end + 1);
        let ends = before.matches(['\n', '\r']).count() - before.matches("\r\n").count();
        Self { line: ends + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where.
    pub position: Position,
    /// What is wrong there, and what was expected.
    pub problem: String,
}

impl SyntaxError {
    pub(super) fn new(position: Position, problem: impl Into<String>) -> Self {
        Self { position, problem: problem.into() }
    }
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.position, self.problem)
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_lines() {
        let text = "ä\r\nb\rc\n\nd";
        let of = |at| {
            let position = Position::of(text, at);
            (position.line, position.column)
        };
        assert_eq!([of(0), of(2), of(4), of(6), of(9)], [(1, 1), (1, 2), (2, 1), (3, 1), (5, 1)]);
    }
}
