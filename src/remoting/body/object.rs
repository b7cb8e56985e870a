//! Writes JSON objects member by member, compact, as the reference lays them out: the caller gives the members in the order of their
//! names; absent ones are left out.

use crate::remoting::fastjson::write_text;

/// Writes one object; dropping it closes the brace.
pub struct ObjectWriter<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object.
    pub fn new(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    /// A member whose value `write` appends.
    pub fn value(&mut self, name: &str, write: impl FnOnce(&mut String)) -> &mut Self {
        if !std::mem::take(&mut self.empty) {
            self.out.push(',');
        }
        write_text(self.out, name);
        self.out.push(':');
        write(self.out);
        self
    }

    /// A member with an integer as its bare key.
    pub fn integer_key(&mut self, key: i64, write: impl FnOnce(&mut String)) -> &mut Self {
        if !std::mem::take(&mut self.empty) {
            self.out.push(',');
        }
        self.out.push_str(itoa::Buffer::new().format(key));
        self.out.push(':');
        write(self.out);
        self
    }

    /// A text.
    pub fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.value(name, |out| write_text(out, text))
    }

    /// An integer.
    pub fn int(&mut self, name: &str, number: i64) -> &mut Self {
        self.value(name, |out| out.push_str(itoa::Buffer::new().format(number)))
    }

    /// A truth value.
    pub fn bool(&mut self, name: &str, value: bool) -> &mut Self {
        self.value(name, |out| out.push_str(if value { "true" } else { "false" }))
    }

    /// A decimal number; what JSON cannot say (not a number, infinite) is 0.0.
    pub fn float(&mut self, name: &str, number: f64) -> &mut Self {
        self.value(name, |out| out.push_str(&format!("{:?}", if number.is_finite() { number } else { 0.0 })))
    }

    /// An array of texts.
    pub fn texts<T: AsRef<str>>(&mut self, name: &str, texts: impl IntoIterator<Item = T>) -> &mut Self {
        self.value(name, |out| write_array(out, texts, |out, text| write_text(out, text.as_ref())))
    }

    /// An object.
    pub fn object(&mut self, name: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) -> &mut Self {
        self.value(name, |out| write(&mut ObjectWriter::new(out)))
    }

    /// A value that serde writes; its type's members must be declared in the order of their names.
    pub fn serde(&mut self, name: &str, value: &impl serde::Serialize) -> &mut Self {
        self.value(name, |out| write_serde(out, value))
    }
}

impl Drop for ObjectWriter<'_> {
    fn drop(&mut self) {
        self.out.push('}');
    }
}

/// An object as a text of its own.
pub fn object_text(write: impl FnOnce(&mut ObjectWriter<'_>)) -> String {
    let mut out = String::new();
    write(&mut ObjectWriter::new(&mut out));
    out
}

/// Appends `[…]`.
pub fn write_array<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    out.push('[');
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

/// Appends what serde makes of a value; `null` for what JSON cannot say.
pub fn write_serde(out: &mut String, value: &impl serde::Serialize) {
    out.push_str(&serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_and_in_order() {
        let text = object_text(|object| {
            object.text("a", "x\"y").int("b", -1).bool("c", true).float("d", 2.0).float("e", f64::NAN).texts("f", ["p", "q"]);
            object.object("g", |object| {
                object.integer_key(0, |out| out.push_str("12")).integer_key(1, |out| out.push_str("13"));
            });
            object.object("h", |_| {});
        });
        assert_eq!(text, r#"{"a":"x\"y","b":-1,"c":true,"d":2.0,"e":0.0,"f":["p","q"],"g":{0:12,1:13},"h":{}}"#);
    }
}
