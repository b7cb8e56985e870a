//! From tokens to a program: recursive descent over the grammar of the reference's `SelectorParser`.
//!
//! ```text
//! or         = and { OR and }
//! and        = equality { AND equality }
//! equality   = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
//! comparison = unary { (">" | ">=" | "<" | "<=") unary
//!                    | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
//!                    | [NOT] BETWEEN unary AND unary
//!                    | [NOT] IN "(" text { "," text } ")" }
//! unary      = ("+" | "-" | NOT) unary | primary
//! primary    = literal | name | "(" or ")"
//! ```
//!
//! - What an operand is (constant, property, truth …) decides what it may be part of, as there.
//! - The expression ends where the grammar cannot go on. What follows is ignored, as there, but for the next token, which must be one;
//!   [`Parsed::rest`] says where it begins, so that it can be told.
//! - Recursion is bounded by [`MAX_DEPTH`].

use std::collections::HashMap;

use smallvec::SmallVec;

use super::error::{Position, SyntaxError};
use super::program::{Comparison, Node, NodeId, Program, Search, Span};
use super::token::{Token, Tokens};

/// How deep an expression may be nested: parentheses, signs, NOTs, and comparisons of comparisons.
pub(super) const MAX_DEPTH: u32 = 200;

const WHAT_OPERANDS_ARE: &str = "a property, a literal, NOT, + or -, or (";

/// An expression that was read.
pub(super) struct Parsed {
    pub(super) program: Program,
    /// Where what is ignored begins.
    pub(super) rest: Option<Position>,
}

/// Reads an expression.
///
/// # Errors
/// Where it is wrong, and what was expected.
pub(super) fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    let mut parser = Parser { tokens: Tokens::new(text), depth: 0, builder: Builder::default() };
    let whole = parser.or()?;
    let rest = parser.tokens.peek()?.map(|_| parser.tokens.position());
    let root = parser.truth(&whole)?;
    Ok(Parsed { program: parser.builder.finish(root), rest })
}

/// What an operand may be part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number or a text, as it is written.
    Constant,
    /// TRUE, FALSE, NULL.
    TruthConstant,
    Property,
    Truth,
    /// Behind a minus.
    Negated,
}

/// A part of the expression that was read.
#[derive(Clone, Copy, Debug)]
struct Operand {
    node: NodeId,
    kind: Kind,
    /// First byte.
    at: usize,
    /// How deep the nodes below it lie.
    depth: u32,
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    depth: u32,
    builder: Builder<'a>,
}

impl<'a> Parser<'a> {
    fn or(&mut self) -> Result<Operand, SyntaxError> {
        let first = self.and()?;
        self.chain(first, Token::Or, Self::and, Node::Any)
    }

    fn and(&mut self) -> Result<Operand, SyntaxError> {
        let first = self.equality()?;
        self.chain(first, Token::And, Self::equality, Node::All)
    }

    /// `first`, or all that are joined to it.
    fn chain(
        &mut self, first: Operand, joint: Token, next: fn(&mut Self) -> Result<Operand, SyntaxError>, node: fn(Span) -> Node,
    ) -> Result<Operand, SyntaxError> {
        if self.tokens.peek()? != Some(joint) {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut operands: SmallVec<[NodeId; 8]> = SmallVec::from_slice(&[self.truth(&first)?]);
        while self.tokens.peek()? == Some(joint) {
            self.tokens.advance();
            let operand = next(self)?;
            depth = depth.max(operand.depth);
            operands.push(self.truth(&operand)?);
        }
        let span = self.builder.operands(&operands);
        self.operand(node(span), Kind::Truth, first.at, depth)
    }

    fn equality(&mut self) -> Result<Operand, SyntaxError> {
        let mut left = self.comparison()?;
        loop {
            left = match self.tokens.peek()? {
                Some(token @ (Token::Equal | Token::NotEqual)) => {
                    self.tokens.advance();
                    let right = self.comparison()?;
                    self.check_equality(&left, &right)?;
                    let equal = self.compare(Comparison::Equal, &left, &right)?;
                    if token == Token::Equal { equal } else { self.not(&equal)? }
                }
                Some(Token::Is) => {
                    self.tokens.advance();
                    let not = self.tokens.peek()? == Some(Token::Not);
                    if not {
                        self.tokens.advance();
                    }
                    self.expect(Token::Null, if not { "NULL" } else { "NULL or NOT NULL" })?;
                    let absent = self.operand(Node::IsNull(left.node), Kind::Truth, left.at, left.depth)?;
                    if not { self.not(&absent)? } else { absent }
                }
                _ => return Ok(left),
            };
        }
    }

    fn comparison(&mut self) -> Result<Operand, SyntaxError> {
        let mut left = self.unary()?;
        loop {
            let Some(token) = self.tokens.peek()? else { return Ok(left) };
            left = match token {
                Token::Greater => self.ordered(Comparison::Greater, &left)?,
                Token::GreaterOrEqual => self.ordered(Comparison::GreaterOrEqual, &left)?,
                Token::Less => self.ordered(Comparison::Less, &left)?,
                Token::LessOrEqual => self.ordered(Comparison::LessOrEqual, &left)?,
                Token::Not => {
                    self.tokens.advance();
                    match self.predicate(&left, true)? {
                        Some(read) => read,
                        None => return Err(self.unexpected("CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN")),
                    }
                }
                _ => match self.predicate(&left, false)? {
                    Some(read) => read,
                    None => return Ok(left),
                },
            };
        }
    }

    fn ordered(&mut self, comparison: Comparison, left: &Operand) -> Result<Operand, SyntaxError> {
        self.tokens.advance();
        let right = self.unary()?;
        self.check_ordered(left)?;
        self.check_ordered(&right)?;
        self.compare(comparison, left, &right)
    }

    /// What may follow NOT as well, if it comes next.
    fn predicate(&mut self, left: &Operand, not: bool) -> Result<Option<Operand>, SyntaxError> {
        let kind = match self.tokens.peek()? {
            Some(Token::Contains) => Search::Contains,
            Some(Token::StartsWith) => Search::StartsWith,
            Some(Token::EndsWith) => Search::EndsWith,
            Some(Token::Between) => return self.between(left, not).map(Some),
            Some(Token::In) => return self.list(left, not).map(Some),
            _ => return Ok(None),
        };
        self.tokens.advance();
        let text = self.text()?;
        let text = self.builder.text(&text);
        self.operand(Node::Search { kind, not, value: left.node, text }, Kind::Truth, left.at, left.depth).map(Some)
    }

    fn between(&mut self, value: &Operand, not: bool) -> Result<Operand, SyntaxError> {
        self.tokens.advance();
        let low = self.unary()?;
        self.expect(Token::And, "AND between the bounds")?;
        let high = self.unary()?;
        for operand in [value, &low, &high] {
            self.check_ordered(operand)?;
        }
        if !not && self.builder.is_greater(&low, &high) {
            return Err(self.at(low.at, "the bounds of BETWEEN are the wrong way round: the first one is greater"));
        }
        let depth = value.depth.max(low.depth).max(high.depth);
        let node = Node::Between { not, value: value.node, bounds: (low.node, high.node) };
        self.operand(node, Kind::Truth, value.at, depth)
    }

    fn list(&mut self, value: &Operand, not: bool) -> Result<Operand, SyntaxError> {
        self.tokens.advance();
        self.expect(Token::Open, "( and a list of texts")?;
        let mut texts = vec![self.text()?];
        while self.tokens.peek()? == Some(Token::Comma) {
            self.tokens.advance();
            texts.push(self.text()?);
        }
        self.expect(Token::Close, ", or )")?;
        if value.kind != Kind::Property {
            return Err(self.at(value.at, "only a property may stand in front of IN"));
        }
        let list = self.builder.elements(texts);
        self.operand(Node::In { not, value: value.node, list }, Kind::Truth, value.at, value.depth)
    }

    fn unary(&mut self) -> Result<Operand, SyntaxError> {
        let at = self.tokens.at();
        let token = self.tokens.peek()?;
        if !matches!(token, Some(Token::Plus | Token::Minus | Token::Not)) {
            return self.primary();
        }
        self.tokens.advance();
        self.descend(at)?;
        let operand = self.unary()?;
        self.depth -= 1;
        match token {
            Some(Token::Not) => self.not(&Operand { at, ..operand }),
            Some(Token::Minus) => self.negated(&operand, at),
            _ => Ok(operand),
        }
    }

    fn negated(&mut self, operand: &Operand, at: usize) -> Result<Operand, SyntaxError> {
        let node = match self.builder.nodes[operand.node as usize] {
            Node::Int(number) => Node::Int(number.wrapping_neg()),
            Node::Long(number) => Node::Long(number.wrapping_neg()),
            Node::Double(number) => Node::Double(-number),
            _ => Node::Negate(operand.node),
        };
        self.operand(node, Kind::Negated, at, operand.depth)
    }

    fn primary(&mut self) -> Result<Operand, SyntaxError> {
        let at = self.tokens.at();
        let written = self.tokens.text();
        let (node, kind) = match self.tokens.peek()? {
            Some(Token::Open) => return self.parenthesized(at),
            Some(Token::Integer) => (integer(written).map_err(|problem| self.at(at, problem))?, Kind::Constant),
            Some(Token::Decimal) => (decimal(written).map_err(|problem| self.at(at, problem))?, Kind::Constant),
            Some(Token::Text) => (Node::Text(self.builder.text(&unquoted(written))), Kind::Constant),
            Some(Token::True) => (Node::Bool(true), Kind::TruthConstant),
            Some(Token::False) => (Node::Bool(false), Kind::TruthConstant),
            Some(Token::Null) => (Node::Null, Kind::TruthConstant),
            Some(Token::Name) => (self.builder.property(written), Kind::Property),
            _ => return Err(self.unexpected(WHAT_OPERANDS_ARE)),
        };
        self.tokens.advance();
        self.operand(node, kind, at, 0)
    }

    fn parenthesized(&mut self, at: usize) -> Result<Operand, SyntaxError> {
        self.tokens.advance();
        self.descend(at)?;
        let inner = self.or()?;
        self.depth -= 1;
        self.expect(Token::Close, ") or an operator")?;
        Ok(Operand { at, ..inner })
    }

    /// The text literal that must come next.
    fn text(&mut self) -> Result<String, SyntaxError> {
        let written = self.tokens.text();
        self.expect(Token::Text, "a text in single quotes")?;
        Ok(unquoted(written))
    }

    fn compare(&mut self, comparison: Comparison, left: &Operand, right: &Operand) -> Result<Operand, SyntaxError> {
        self.operand(Node::Compare(comparison, left.node, right.node), Kind::Truth, left.at, left.depth.max(right.depth))
    }

    fn not(&mut self, operand: &Operand) -> Result<Operand, SyntaxError> {
        let of = self.truth(operand)?;
        self.operand(Node::Not(of), Kind::Truth, operand.at, operand.depth)
    }

    /// The operand where a truth is wanted.
    fn truth(&mut self, operand: &Operand) -> Result<NodeId, SyntaxError> {
        match operand.kind {
            Kind::Truth | Kind::TruthConstant => Ok(operand.node),
            Kind::Property => Ok(self.builder.node(Node::Truth(operand.node))),
            Kind::Constant | Kind::Negated => Err(self.at(operand.at, "this is a value, where a condition is expected")),
        }
    }

    /// What `<`, `>`, `<=`, `>=` and BETWEEN compare: properties, numbers, what a minus stands in front of.
    fn check_ordered(&self, operand: &Operand) -> Result<(), SyntaxError> {
        let problem = match operand.kind {
            Kind::Property | Kind::Negated => return Ok(()),
            Kind::Constant if !self.builder.is_text(operand) => return Ok(()),
            Kind::Constant => "a text has no order: < > <= >= and BETWEEN take numbers and properties",
            Kind::Truth | Kind::TruthConstant => "a condition has no order: < > <= >= and BETWEEN take numbers and properties",
        };
        Err(self.at(operand.at, problem))
    }

    fn check_equality(&self, left: &Operand, right: &Operand) -> Result<(), SyntaxError> {
        for operand in [left, right] {
            if operand.kind == Kind::TruthConstant && self.builder.nodes[operand.node as usize] == Node::Null {
                return Err(self.at(operand.at, "NULL cannot be compared: IS NULL and IS NOT NULL ask for it"));
            }
        }
        if left.kind == Kind::TruthConstant && right.kind == Kind::Constant {
            return Err(self.at(right.at, "TRUE and FALSE cannot be compared with a number or a text"));
        }
        Ok(())
    }

    /// Puts up a node above others that lie `depth` deep.
    fn operand(&mut self, node: Node, kind: Kind, at: usize, depth: u32) -> Result<Operand, SyntaxError> {
        if depth >= MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        Ok(Operand { node: self.builder.node(node), kind, at, depth: depth + 1 })
    }

    /// Notes that one more level is begun.
    fn descend(&mut self, at: usize) -> Result<(), SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.too_deep(at)) } else { Ok(()) }
    }

    fn too_deep(&self, at: usize) -> SyntaxError {
        self.at(at, format!("nested deeper than {MAX_DEPTH} levels"))
    }

    fn expect(&mut self, token: Token, expected: &str) -> Result<(), SyntaxError> {
        if self.tokens.peek()? != Some(token) {
            return Err(self.unexpected(expected));
        }
        self.tokens.advance();
        Ok(())
    }

    /// The next token is not what should stand there.
    fn unexpected(&self, expected: &str) -> SyntaxError {
        match self.tokens.peek() {
            Ok(None) => SyntaxError::new(self.tokens.position(), format!("the expression ends where {expected} is expected")),
            Ok(Some(_)) => {
                let found = self.tokens.text();
                SyntaxError::new(self.tokens.position(), format!("found {}, expected {expected}", shortened(found)))
            }
            Err(error) => error,
        }
    }

    fn at(&self, at: usize, problem: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.tokens.position_of(at), problem)
    }
}

/// A token's text for a message.
fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn integer(written: &str) -> Result<Node, String> {
    let digits = written.trim_end_matches(['l', 'L']);
    let number: i64 =
        digits.parse().map_err(|_| format!("{} is beyond 64 bits, the greatest integer is {}", shortened(digits), i64::MAX))?;
    Ok(i32::try_from(number).map_or(Node::Long(number), Node::Int))
}

fn decimal(written: &str) -> Result<Node, String> {
    match written.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Node::Double(number)),
        Ok(0.0) => Err(format!("{} is 0 as a decimal number, which is not allowed: write 0", shortened(written))),
        _ => Err(format!("{} is greater than the greatest decimal number, {:e}", shortened(written), f64::MAX)),
    }
}

/// The text of a literal.
fn unquoted(written: &str) -> String {
    let inner = written.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(written);
    inner.replace("''", "'")
}

/// The program under construction.
#[derive(Default)]
struct Builder<'a> {
    nodes: Vec<Node>,
    operands: Vec<NodeId>,
    elements: Vec<Span>,
    texts: String,
    /// Properties by name, in the order in which they were met.
    names: HashMap<&'a str, u32>,
}

impl<'a> Builder<'a> {
    fn node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() as NodeId - 1 // an expression has far fewer than 2^32 bytes
    }

    fn property(&mut self, name: &'a str) -> Node {
        let next = self.names.len() as u32;
        Node::Property(*self.names.entry(name).or_insert(next))
    }

    fn text(&mut self, text: &str) -> Span {
        let start = self.texts.len() as u32;
        self.texts.push_str(text);
        Span { start, len: text.len() as u32 }
    }

    fn operands(&mut self, operands: &[NodeId]) -> Span {
        let start = self.operands.len() as u32;
        self.operands.extend_from_slice(operands);
        Span { start, len: operands.len() as u32 }
    }

    fn elements(&mut self, mut texts: Vec<String>) -> Span {
        texts.sort_unstable();
        texts.dedup();
        let start = self.elements.len() as u32;
        for text in &texts {
            let span = self.text(text);
            self.elements.push(span);
        }
        Span { start, len: texts.len() as u32 }
    }

    fn is_text(&self, operand: &Operand) -> bool {
        matches!(self.nodes[operand.node as usize], Node::Text(_))
    }

    /// Whether both are numbers as they are written, and the first is greater.
    fn is_greater(&self, one: &Operand, other: &Operand) -> bool {
        if one.kind != Kind::Constant || other.kind != Kind::Constant {
            return false;
        }
        let integer = |operand: &Operand| match self.nodes[operand.node as usize] {
            Node::Int(number) => Some(i64::from(number)),
            Node::Long(number) => Some(number),
            _ => None,
        };
        let decimal = |operand: &Operand| match self.nodes[operand.node as usize] {
            Node::Double(number) => number,
            _ => integer(operand).map_or(f64::NAN, |number| number as f64),
        };
        match (integer(one), integer(other)) {
            (Some(one), Some(other)) => one > other,
            _ => decimal(one) > decimal(other),
        }
    }

    /// The program, names sorted.
    fn finish(mut self, root: NodeId) -> Program {
        let mut sorted: Vec<(&str, u32)> = std::mem::take(&mut self.names).into_iter().collect();
        sorted.sort_unstable();
        let mut places = vec![0; sorted.len()];
        let mut names = Vec::with_capacity(sorted.len());
        for (place, (name, met)) in sorted.into_iter().enumerate() {
            places[met as usize] = place as u32;
            names.push(self.text(name));
        }
        for node in &mut self.nodes {
            if let Node::Property(met) = node {
                *met = places[*met as usize];
            }
        }
        Program {
            nodes: self.nodes.into(),
            root,
            operands: self.operands.into(),
            elements: self.elements.into(),
            names: names.into(),
            texts: self.texts.into(),
        }
    }
}
