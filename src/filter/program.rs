//! The compact form of an expression, and its evaluation over the properties text of a message.
//!
//! - Nodes lie in one slice, operands before what uses them; texts lie in one string. Evaluating allocates nothing as long as the
//!   expression names at most [`INLINE_NAMES`] different properties.
//! - Types and conversions are those of the reference's `ComparisonExpression`: property values are texts and become a number when they
//!   are compared with one; `Integer`, `Long` and `Double` stay apart, as the same text may be the one and not the other.
//! - What throws there fails here: the whole expression fails, and the message does not pass.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::common::properties;

use super::number;

/// Different properties whose values fit on the stack.
const INLINE_NAMES: usize = 16;

/// Index of a node.
pub(super) type NodeId = u32;

/// Part of a slice or string: start and length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    pub(super) fn of<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[self.start as usize..(self.start + self.len) as usize]
    }

    fn text<'a>(&self, all: &'a str) -> &'a str {
        &all[self.start as usize..(self.start + self.len) as usize]
    }
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// Where a text is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    Contains,
    StartsWith,
    EndsWith,
}

/// A part of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    /// Part of the texts.
    Text(Span),
    /// Index of a name.
    Property(u32),
    Negate(NodeId),
    Not(NodeId),
    /// A property where a truth is wanted: texts are not true.
    Truth(NodeId),
    IsNull(NodeId),
    Compare(Comparison, NodeId, NodeId),
    /// Value, and a pair of bounds.
    Between {
        not: bool,
        value: NodeId,
        bounds: (NodeId, NodeId),
    },
    /// A property, and a part of the sorted lists of texts.
    In {
        not: bool,
        value: NodeId,
        list: Span,
    },
    Search {
        kind: Search,
        not: bool,
        value: NodeId,
        text: Span,
    },
    /// A part of the lists of operands.
    All(Span),
    /// A part of the lists of operands.
    Any(Span),
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) nodes: Box<[Node]>,
    pub(super) root: NodeId,
    /// Operands of `All` and `Any`.
    pub(super) operands: Box<[NodeId]>,
    /// Elements of `In`, those of each sorted.
    pub(super) elements: Box<[Span]>,
    /// Names of properties, sorted.
    pub(super) names: Box<[Span]>,
    pub(super) texts: Box<str>,
}

/// An evaluation that the reference ends with an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// True, false, or unknown.
type Truth = Result<Option<bool>, Failed>;

/// A value on the way.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'a str),
}

impl Program {
    /// Evaluates the expression over a properties text.
    ///
    /// # Errors
    /// [`Failed`].
    pub(super) fn evaluate(&self, properties: &str) -> Truth {
        let mut values: SmallVec<[Option<&str>; INLINE_NAMES]> = SmallVec::from_elem(None, self.names.len());
        if !values.is_empty() {
            for (name, value) in properties::iterate(properties) {
                if let Some(place) = self.place(name) {
                    values[place] = Some(value); // the last of equal names counts
                }
            }
        }
        Evaluation { program: self, values: &values }.truth(self.root)
    }

    fn place(&self, name: &str) -> Option<usize> {
        const FEW: usize = 6;
        if self.names.len() <= FEW {
            return self.names.iter().position(|known| known.text(&self.texts) == name);
        }
        self.names.binary_search_by(|known| known.text(&self.texts).cmp(name)).ok()
    }
}

struct Evaluation<'a> {
    program: &'a Program,
    values: &'a [Option<&'a str>],
}

impl<'a> Evaluation<'a> {
    fn truth(&self, id: NodeId) -> Truth {
        let program = self.program;
        match program.nodes[id as usize] {
            Node::Bool(truth) => Ok(Some(truth)),
            Node::Not(of) => Ok(self.truth(of)?.map(|truth| !truth)),
            Node::Truth(of) => Ok(match self.value(of)? {
                Value::Null => None,
                Value::Bool(truth) => Some(truth),
                _ => Some(false),
            }),
            Node::IsNull(of) => Ok(Some(matches!(self.value(of)?, Value::Null))),
            Node::Compare(Comparison::Equal, left, right) => equal(self.value(left)?, self.value(right)?),
            Node::Compare(comparison, left, right) => self.compare(comparison, self.value(left)?, right),
            Node::Between { not, value, bounds } => self.between(not, self.value(value)?, bounds),
            Node::In { not, value, list } => Ok(match self.value(value)? {
                Value::Text(text) => {
                    let elements = list.of(&program.elements);
                    Some(elements.binary_search_by(|element| element.text(&program.texts).cmp(text)).is_ok() ^ not)
                }
                _ => None,
            }),
            Node::Search { kind, not, value, text } => self.search(kind, not, value, text.text(&program.texts)).map(Some),
            Node::All(operands) => self.gather(operands, false),
            Node::Any(operands) => self.gather(operands, true),
            Node::Null | Node::Int(_) | Node::Long(_) | Node::Double(_) | Node::Text(_) | Node::Property(_) | Node::Negate(_) => Ok(None),
        }
    }

    /// The operands up to the first that decides.
    fn gather(&self, operands: Span, decisive: bool) -> Truth {
        let mut result = Some(!decisive);
        for operand in operands.of(&self.program.operands) {
            match self.truth(*operand)? {
                Some(truth) if truth == decisive => return Ok(Some(decisive)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }

    fn compare(&self, comparison: Comparison, left: Value<'_>, right: NodeId) -> Truth {
        if let Value::Null = left {
            return Ok(None); // the right side is not looked at
        }
        let ordering = match (left, self.value(right)?) {
            (_, Value::Null) => return Ok(None),
            (Value::Text(left), Value::Text(right)) => {
                let (left, right) = (number::double(left).ok_or(Failed)?, number::double(right).ok_or(Failed)?);
                compare_doubles(left, right)
            }
            (left, right) => order(left, right)?,
        };
        Ok(Some(comparison.holds(ordering)))
    }

    /// `BETWEEN` is two comparisons joined by AND, `NOT BETWEEN` two joined by OR.
    fn between(&self, not: bool, value: Value<'_>, (low, high): (NodeId, NodeId)) -> Truth {
        let (first, second) =
            if not { (Comparison::Less, Comparison::Greater) } else { (Comparison::GreaterOrEqual, Comparison::LessOrEqual) };
        let one = self.compare(first, value, low)?;
        if one == Some(not) {
            return Ok(one);
        }
        let other = self.compare(second, value, high)?;
        Ok(if other == Some(not) { other } else { one.and(other) })
    }

    fn search(&self, kind: Search, not: bool, value: NodeId, text: &str) -> Result<bool, Failed> {
        if text.is_empty() {
            return Ok(false); // even its value is not looked at
        }
        let Value::Text(value) = self.value(value)? else { return Ok(false) };
        let found = match kind {
            Search::Contains => value.contains(text),
            Search::StartsWith => value.starts_with(text),
            Search::EndsWith => value.ends_with(text),
        };
        Ok(found ^ not)
    }

    fn value(&self, id: NodeId) -> Result<Value<'a>, Failed> {
        let program = self.program;
        Ok(match program.nodes[id as usize] {
            Node::Null => Value::Null,
            Node::Bool(truth) => Value::Bool(truth),
            Node::Int(number) => Value::Int(number),
            Node::Long(number) => Value::Long(number),
            Node::Double(number) => Value::Double(number),
            Node::Text(span) => Value::Text(span.text(&program.texts)),
            Node::Property(place) => self.values[place as usize].map_or(Value::Null, Value::Text),
            Node::Negate(of) => match self.value(of)? {
                Value::Int(number) => Value::Int(number.wrapping_neg()),
                Value::Long(number) => Value::Long(number.wrapping_neg()),
                Value::Double(number) => Value::Double(-number),
                _ => Value::Null,
            },
            _ => self.truth(id)?.map_or(Value::Null, Value::Bool),
        })
    }
}

/// Equality: two absent values are equal, an absent left one is unknown, an absent right one differs.
fn equal(left: Value<'_>, right: Value<'_>) -> Truth {
    match (left, right) {
        (Value::Null, Value::Null) => Ok(Some(true)),
        (Value::Null, _) => Ok(None),
        (_, Value::Null) => Ok(Some(false)),
        (Value::Text(left), Value::Text(right)) => Ok(Some(left == right)),
        (left, right) => order(left, right).map(|ordering| Some(ordering.is_eq())),
    }
}

/// The order of two values that are there and not both texts. Kinds that do not go together are "less".
fn order(left: Value<'_>, right: Value<'_>) -> Result<Ordering, Failed> {
    use Value::*;
    Ok(match (left, right) {
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Bool(_), Text(_)) => return Err(Failed), // the left value is taken for a text
        (Int(left), Int(right)) => left.cmp(&right),
        (Int(left), Long(right)) => i64::from(left).cmp(&right),
        (Int(left), Double(right)) => compare_doubles(f64::from(left), right),
        (Int(left), Text(right)) => left.cmp(&number::int(right).ok_or(Failed)?),
        (Long(left), Int(right)) => left.cmp(&i64::from(right)),
        (Long(left), Long(right)) => left.cmp(&right),
        (Long(left), Double(right)) => compare_doubles(left as f64, right),
        (Long(left), Text(right)) => left.cmp(&number::long(right).ok_or(Failed)?),
        (Double(left), Int(right)) => compare_doubles(left, f64::from(right)),
        (Double(left), Long(right)) => compare_doubles(left, right as f64),
        (Double(left), Double(right)) => compare_doubles(left, right),
        (Double(left), Text(right)) => compare_doubles(left, number::double(right).ok_or(Failed)?),
        (Text(left), Bool(right)) => left.eq_ignore_ascii_case("true").cmp(&right),
        (Text(left), Int(right)) => number::int(left).ok_or(Failed)?.cmp(&right),
        (Text(left), Long(right)) => number::long(left).ok_or(Failed)?.cmp(&right),
        (Text(left), Double(right)) => compare_doubles(number::double(left).ok_or(Failed)?, right),
        (Text(left), Text(right)) => left.cmp(right),
        (Null, _) | (_, Null) | (Bool(_), _) | (_, Bool(_)) => Ordering::Less,
    })
}

/// `Double.compare`: -0.0 comes before 0.0, NaN equals itself and comes last.
fn compare_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).filter(|ordering| ordering.is_ne()).unwrap_or_else(|| match (left.is_nan(), right.is_nan()) {
        (false, false) => right.is_sign_negative().cmp(&left.is_sign_negative()),
        (left, right) => left.cmp(&right),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_ordered_as_in_java() {
        let ascending = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN];
        for (i, left) in ascending.iter().enumerate() {
            for (j, right) in ascending.iter().enumerate() {
                assert_eq!(compare_doubles(*left, *right), i.cmp(&j), "{left} {right}");
            }
        }
        assert_eq!(compare_doubles(-f64::NAN, f64::NAN), Ordering::Equal);
    }

    #[test]
    fn nodes_are_small() {
        assert!(size_of::<Node>() <= 24, "{}", size_of::<Node>());
    }
}
