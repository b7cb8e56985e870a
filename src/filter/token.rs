//! Tokens of a SQL92 filter, and where they stand.
//!
//! - Tokens are those of the reference's `SelectorParser`: the longest match counts, keywords in any case, texts in single quotes with
//!   `''` for a quote, comments `/* */`, and `--` up to an end of line that must be there.
//! - They are made as the parser asks for them: what it never asks for may be anything.

use logos::{Lexer, Logos, Span};

use super::error::{Position, SyntaxError};

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Logos)]
#[logos(skip r"[ \t\n\r\f]+")]
#[logos(skip(r"--[^\n\r]*(\r\n|\n|\r)", allow_greedy = true))]
#[logos(skip r"/\*[^*]*\*(\*|[^*/][^*]*\*)*/")]
pub(super) enum Token {
    #[regex("(?i-u:NOT)", priority = 100)]
    Not,
    #[regex("(?i-u:AND)", priority = 100)]
    And,
    #[regex("(?i-u:OR)", priority = 100)]
    Or,
    #[regex("(?i-u:BETWEEN)", priority = 100)]
    Between,
    #[regex("(?i-u:IN)", priority = 100)]
    In,
    #[regex("(?i-u:TRUE)", priority = 100)]
    True,
    #[regex("(?i-u:FALSE)", priority = 100)]
    False,
    #[regex("(?i-u:NULL)", priority = 100)]
    Null,
    #[regex("(?i-u:IS)", priority = 100)]
    Is,
    #[regex("(?i-u:CONTAINS)", priority = 100)]
    Contains,
    #[regex("(?i-u:STARTSWITH)", priority = 100)]
    StartsWith,
    #[regex("(?i-u:ENDSWITH)", priority = 100)]
    EndsWith,
    #[token("=")]
    Equal,
    #[token("<>")]
    NotEqual,
    #[token(">")]
    Greater,
    #[token(">=")]
    GreaterOrEqual,
    #[token("<")]
    Less,
    #[token("<=")]
    LessOrEqual,
    #[token("(")]
    Open,
    #[token(")")]
    Close,
    #[token(",")]
    Comma,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[regex("0|[1-9][0-9]*[lL]?")]
    Integer,
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")]
    #[regex(r"\.[0-9]+([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
    Decimal,
    #[regex("'([^']|'')*'")]
    Text,
    #[regex("[a-zA-Z_$][a-zA-Z0-9_$]*")]
    Name,
}

/// The tokens of one expression, with one to look at ahead.
pub(super) struct Tokens<'a> {
    lexer: Lexer<'a, Token>,
    next: Option<(Result<Token, ()>, Span)>,
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        let mut lexer = Token::lexer(text);
        let next = lexer.next().map(|token| (token, lexer.span()));
        Self { lexer, next }
    }

    /// The next token; `None` at the end.
    ///
    /// # Errors
    /// What comes next is no token.
    pub(super) fn peek(&self) -> Result<Option<Token>, SyntaxError> {
        match &self.next {
            None => Ok(None),
            Some((Ok(token), _)) => Ok(Some(*token)),
            Some((Err(()), span)) => Err(SyntaxError::new(self.position(), no_token(&self.lexer.source()[span.start..]))),
        }
    }

    /// Goes on behind the next token.
    pub(super) fn advance(&mut self) {
        self.next = self.lexer.next().map(|token| (token, self.lexer.span()));
    }

    /// Text of the next token, as it is written; empty at the end.
    pub(super) fn text(&self) -> &'a str {
        self.next.as_ref().map_or("", |(_, span)| &self.lexer.source()[span.clone()])
    }

    /// Where the next token starts, in bytes.
    pub(super) fn at(&self) -> usize {
        self.next.as_ref().map_or(self.lexer.source().len(), |(_, span)| span.start)
    }

    /// Where the next token stands.
    pub(super) fn position(&self) -> Position {
        self.position_of(self.at())
    }

    /// Where a byte stands.
    pub(super) fn position_of(&self, at: usize) -> Position {
        Position::of(self.lexer.source(), at)
    }
}

/// What is wrong with a text that begins with no token.
fn no_token(rest: &str) -> String {
    let hint = match rest.as_bytes() {
        [b'\'', ..] => return "the text that begins here has no closing quote".to_owned(),
        [b'/', b'*', ..] => return "the comment that begins here has no end".to_owned(),
        [b'!', b'=', ..] => ": unequal is written <>",
        [b'"' | b'`', ..] => ": texts stand in single quotes, names in none",
        [b'&', b'&', ..] => ": write AND",
        [b'|', b'|', ..] => ": write OR",
        [b'*' | b'/' | b'%', ..] => ": there is no arithmetic",
        _ => "",
    };
    let character = rest.chars().next().unwrap_or_default();
    format!("no token begins with {character:?}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(Token, &str)> {
        let mut tokens = Tokens::new(text);
        let mut all = Vec::new();
        while let Ok(Some(token)) = tokens.peek() {
            all.push((token, tokens.text()));
            tokens.advance();
        }
        all
    }

    #[test]
    fn the_longest_match_counts() {
        use Token::*;
        let kinds = |text: &str| all(text).into_iter().map(|(token, _)| token).collect::<Vec<_>>();
        assert_eq!(kinds("a<=b <> c>= 1"), [Name, LessOrEqual, Name, NotEqual, Name, GreaterOrEqual, Integer]);
        assert_eq!(kinds("NOTE nOt IN INN"), [Name, Not, In, Name]);
        assert_eq!(
            all("007 0x1 5L 5LL"),
            [(Integer, "0"), (Integer, "0"), (Integer, "7"), (Integer, "0"), (Name, "x1"), (Integer, "5L"), (Integer, "5L"), (Name, "L")]
        );
        assert_eq!(
            all("5. .5 5e1 05.e-1 5e"),
            [(Decimal, "5."), (Decimal, ".5"), (Decimal, "5e1"), (Decimal, "05.e-1"), (Integer, "5"), (Name, "e")]
        );
        assert_eq!(all("'it''s' '' ''''"), [(Text, "'it''s'"), (Text, "''"), (Text, "''''")]);
    }

    #[test]
    fn comments() {
        use Token::*;
        assert_eq!(all("a-- x\rb/***/c/* * / */d"), [(Name, "a"), (Name, "b"), (Name, "c"), (Name, "d")]);
        assert_eq!(all("--x"), [(Minus, "-"), (Minus, "-"), (Name, "x")], "no end of line: no comment");
    }

    #[test]
    fn what_is_no_token_is_told_when_it_is_reached() {
        for (text, at, part) in [("a ! b", 2, "'!'"), ("a != b", 2, "<>"), ("a 'b", 2, "closing quote"), ("a /* b", 2, "no end")] {
            let mut tokens = Tokens::new(text);
            assert_eq!(tokens.peek().unwrap(), Some(Token::Name));
            tokens.advance();
            let error = tokens.peek().unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.position.column, at + 1);
        }
    }
}
