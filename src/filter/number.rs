//! Numbers out of texts, as Java reads them: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`.

/// Digits zero of the other scripts whose digits Java reads as well; nine more follow each.
const ZEROS: [u32; 36] = [
    0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66, 0x0de6, 0x0e50, 0x0ed0, 0x0f20, 0x1040,
    0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50,
    0xabf0, 0xff10,
];

/// A 32-bit integer: a sign, perhaps, and digits, nothing else.
pub(super) fn int(text: &str) -> Option<i32> {
    long(text).and_then(|value| i32::try_from(value).ok())
}

/// A 64-bit integer: a sign, perhaps, and digits, nothing else.
pub(super) fn long(text: &str) -> Option<i64> {
    let (negative, digits) = sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64; // gathered below zero, where there is one more
    for character in digits.chars() {
        value = value.checked_mul(10)?.checked_sub(digit(character)?)?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

fn digit(character: char) -> Option<i64> {
    let code = u32::from(character);
    let digit = match character.to_digit(10) {
        Some(digit) => digit,
        None if character.is_ascii() => return None,
        None => ZEROS.iter().map(|zero| code.wrapping_sub(*zero)).find(|distance| *distance < 10)?,
    };
    Some(i64::from(digit))
}

fn sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// A floating-point number: blanks around it, `NaN`, `Infinity`, decimal or hexadecimal, and one of `fFdD` at the end of a number.
pub(super) fn double(text: &str) -> Option<f64> {
    let trimmed = text.trim_matches(|character| character <= ' ');
    let (negative, unsigned) = sign(trimmed);
    let value = match unsigned {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        _ => {
            let number = unsigned.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(unsigned);
            match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
                Some(_) => hexadecimal(number.get(2..)?)?,
                None if is_decimal(number) => number.parse().ok()?,
                None => return None,
            }
        }
    };
    Some(if negative { -value } else { value })
}

/// Digits with a point, perhaps; then, perhaps, `e` and a signed exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    whole.len() + fraction.len() > 0
        && are_digits(whole)
        && are_digits(fraction)
        && exponent.is_none_or(|exponent| {
            let digits = sign(exponent).1;
            !digits.is_empty() && are_digits(digits)
        })
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What follows `0x`: hexadecimal digits with a point, perhaps, and `p` with a signed binary exponent in decimal.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_written = !whole.is_empty() && !mantissa.contains('.') || mantissa.ends_with('.') && !whole.is_empty() || !fraction.is_empty();
    let (below, digits) = sign(exponent);
    if !is_written || digits.is_empty() || !are_digits(digits) {
        return None;
    }
    let written: i64 = digits.parse().map_or(1 << 40, |exponent: i64| exponent.min(1 << 40));
    let mut exponent = if below { -written } else { written };
    exponent -= 4 * fraction.len() as i64;
    let mut bits = 0u64;
    for character in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(character.to_digit(16)?);
        if bits >> 60 == 0 {
            bits = bits << 4 | digit;
        } else {
            exponent += 4;
            bits |= u64::from(digit != 0); // what is lost still decides how a tie is rounded
        }
    }
    Some(scaled(bits, exponent))
}

/// `bits × 2^exponent`, rounded to the nearest, ties to even. The lowest bit of 61 and more may stand for all below it.
fn scaled(bits: u64, exponent: i64) -> f64 {
    const MANTISSA_BITS: i64 = 53;
    const LEAST_EXPONENT: i64 = -1074;
    if bits == 0 {
        return 0.0;
    }
    let used = 64 - i64::from(bits.leading_zeros());
    if exponent + used > 1024 {
        return f64::INFINITY;
    }
    let drop = (used - MANTISSA_BITS).max(LEAST_EXPONENT - exponent);
    if drop > 64 {
        return 0.0;
    }
    let (kept, exponent) = if drop <= 0 {
        (bits, exponent)
    } else {
        let wide = u128::from(bits);
        let (kept, half) = ((wide >> drop) as u64, 1u128 << (drop - 1));
        let rest = wide & ((half << 1) - 1);
        (kept + u64::from(rest > half || rest == half && kept & 1 == 1), exponent + drop)
    };
    // At most 53 bits, so the conversion is exact; two steps, as one power may lie beyond a double's range.
    let step = exponent / 2;
    kept as f64 * 2f64.powi(step as i32) * 2f64.powi((exponent - step) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, value) in [("0", 0), ("+5", 5), ("-5", -5), ("007", 7), ("٤٢", 42), ("-９", -9)] {
            assert_eq!((int(text), long(text)), (Some(value), Some(i64::from(value))), "{text}");
        }
        for text in ["", "+", "-", "--5", "5 ", " 5", "5L", "2.5", "1_0", "0x5", "five", "5\u{a0}", "²", "𝟓"] {
            assert_eq!((int(text), long(text)), (None, None), "{text:?}");
        }
        assert_eq!((int("2147483647"), int("-2147483648")), (Some(i32::MAX), Some(i32::MIN)));
        assert_eq!((int("2147483648"), int("-2147483649")), (None, None));
        assert_eq!((long("9223372036854775807"), long("-9223372036854775808")), (Some(i64::MAX), Some(i64::MIN)));
        assert_eq!((long("9223372036854775808"), long("-9223372036854775809")), (None, None));
    }

    #[test]
    fn doubles() {
        let table = [
            ("2.5", 2.5),
            (" 2.5\t", 2.5),
            ("+.5", 0.5),
            ("-5.", -5.0),
            ("5.d", 5.0),
            ("1e3", 1000.0),
            ("1E-2F", 0.01),
            ("1e400", f64::INFINITY),
            ("1e-400", 0.0),
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x1p1", 2.0),
            ("-0X.8P0d", -0.5),
            ("0x1.8p-1f", 0.75),
            ("0xa.p0", 10.0),
            ("0x0p99999999999999999999", 0.0),
            ("0x1p99999999999999999999", f64::INFINITY),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", f64::from_bits(1)),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000000001p0", 1.0000000000000002),
            ("0x1.00000000000018p0", 1.0000000000000004),
        ];
        for (text, value) in table {
            assert_eq!(double(text).map(f64::to_bits), Some(value.to_bits()), "{text}");
        }
        assert!(double("NaN").unwrap().is_nan() && double("-NaN").unwrap().is_nan());
        let wrong = [
            "",
            " ",
            "+",
            ".",
            "e5",
            "1e",
            "1e+",
            "1.2.3",
            "1_0",
            "nan",
            "inf",
            "infinity",
            "NaNd",
            "Infinityf",
            "1dd",
            "0x",
            "0x1",
            "0x.p1",
            "0xp1",
            "0x1p",
            "0xgp1",
            "0x1p1e",
            "--1",
            "５",
            "1,5",
            "d",
            "0x1.8p1.5",
        ];
        for text in wrong {
            assert_eq!(double(text), None, "{text:?}");
        }
    }
}
