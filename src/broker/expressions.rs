//! Compiled expressions of pulls that carry their own text: each text is compiled once, not with each pull.
//!
//! - Equal texts give the same expression, so that held pulls of one text are woken by one evaluation.
//! - What is kept is bounded in number and bytes. When it is full, what nobody uses is dropped; what finds no room then is compiled anew.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::RwLock;

use crate::filter::Expression;

/// Expressions that are kept.
const MAX_EXPRESSIONS: usize = 1_024;
/// Bytes of all expressions that are kept, with their texts.
const MAX_BYTES: usize = 16 << 20;

/// The expressions.
#[derive(Default)]
pub struct ExpressionCache {
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    by_text: HashMap<Box<str>, Arc<Expression>, RandomState>,
    bytes: usize,
}

impl ExpressionCache {
    /// The expression of a text.
    ///
    /// # Errors
    /// Text for the client: where it is wrong, and what was expected.
    pub fn get(&self, text: &str) -> Result<Arc<Expression>, String> {
        if let Some(known) = self.kept.read().by_text.get(text) {
            return Ok(Arc::clone(known));
        }
        let expression = Arc::new(compile(text)?);
        if let Some(position) = expression.ignored_from() {
            log::warn!("a pull's expression is ignored from {position} on: expression={text:?}");
        }
        Ok(self.kept.write().keep(text, expression))
    }
}

/// Compiles an expression.
///
/// # Errors
/// Text for the client: where it is wrong, and what was expected.
pub(crate) fn compile(text: &str) -> Result<Expression, String> {
    Expression::compile(text).map_err(|error| format!("the SQL92 expression is wrong at {error}"))
}

impl Kept {
    fn keep(&mut self, text: &str, expression: Arc<Expression>) -> Arc<Expression> {
        if let Some(known) = self.by_text.get(text) {
            return Arc::clone(known); // somebody was quicker
        }
        let cost = cost(text, &expression);
        if !self.has_room(cost) {
            self.by_text.retain(|_, known| Arc::strong_count(known) > 1);
            self.bytes = self.by_text.iter().map(|(text, known)| self::cost(text, known)).sum();
        }
        if self.has_room(cost) {
            self.bytes += cost;
            self.by_text.insert(text.into(), Arc::clone(&expression));
        }
        expression
    }

    fn has_room(&self, cost: usize) -> bool {
        self.by_text.len() < MAX_EXPRESSIONS && self.bytes + cost <= MAX_BYTES
    }
}

fn cost(text: &str, expression: &Expression) -> usize {
    text.len() + size_of::<Expression>() + expression.heap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_expression() {
        let cache = ExpressionCache::default();
        let one = cache.get("a = 1").unwrap();
        assert!(Arc::ptr_eq(&one, &cache.get("a = 1").unwrap()));
        assert!(!Arc::ptr_eq(&one, &cache.get("a = 2").unwrap()));
        let error = cache.get("a = ").unwrap_err();
        assert!(error.contains("line 1, column 5"), "{error}");
    }

    #[test]
    fn only_so_many_are_kept() {
        let cache = ExpressionCache::default();
        let used: Vec<_> = (0..10).map(|number| cache.get(&format!("a = {number}")).unwrap()).collect();
        for number in 0..3 * MAX_EXPRESSIONS {
            cache.get(&format!("b = {number}")).unwrap();
        }
        assert!(cache.kept.read().by_text.len() <= MAX_EXPRESSIONS);
        for (number, used) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(used, &cache.get(&format!("a = {number}")).unwrap()));
        }
        let kept = cache.kept.read();
        assert_eq!(kept.bytes, kept.by_text.iter().map(|(text, known)| cost(text, known)).sum::<usize>());
    }
}
