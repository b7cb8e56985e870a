use super::*;

/// Written by `tests/interop/java-filter/run`.
const JAVA_RESULTS: &str = include_str!("tests/java_results.tsv");

/// Undoes the escapes of the table.
fn decoded(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some('\\') => '\\',
                Some('1') => '\u{1}',
                Some('2') => '\u{2}',
                other => panic!("no escape: {other:?} in {text:?}"),
            },
            other => other,
        });
    }
    out
}

/// One letter for each set of properties, or REFUSED.
fn results(expression: &str, sets: &[(String, String)]) -> String {
    let Ok(compiled) = Expression::compile(expression) else { return "REFUSED".to_owned() };
    let letter = |properties: &str| match compiled.evaluate(properties) {
        Outcome::Match => 'M',
        Outcome::NoMatch => 'N',
        Outcome::Failed => 'E',
    };
    sets.iter().map(|(_, properties)| letter(properties)).collect()
}

/// Compares with the table in the tree; with a larger one when `PETREL_FILTER_TABLE` names its file.
#[test]
fn results_are_those_of_java() {
    let mut sets = Vec::new();
    let (mut compared, mut refused, mut matching, mut wrong) = (0, 0, 0, Vec::new());
    let other = std::env::var_os("PETREL_FILTER_TABLE").map(|path| std::fs::read_to_string(path).unwrap());
    for row in other.as_deref().unwrap_or(JAVA_RESULTS).lines() {
        match row.split('\t').collect::<Vec<_>>()[..] {
            ["set", name, properties] => sets.push((name.to_owned(), decoded(properties))),
            ["expr", expression, expected] => {
                let expression = decoded(expression);
                let actual = results(&expression, &sets);
                compared += 1;
                refused += usize::from(expected == "REFUSED");
                matching += usize::from(expected.contains('M'));
                if actual != expected {
                    wrong.push(format!("{expression:?}: Java {expected}, here {actual}"));
                }
            }
            _ => panic!("no row: {row:?}"),
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}, over {:?}:\n{}", wrong.len(), sets, wrong.join("\n"));
    assert!(compared > 1000 && refused > 200 && matching > 400 && sets.len() >= 8, "{compared} {refused} {matching} {}", sets.len());
}

#[test]
fn errors_say_where_and_what_was_expected() {
    let table = [
        ("", 1, 1, "ends where a property, a literal"),
        ("a >", 1, 4, "ends where a property, a literal"),
        ("a > AND b = 1", 1, 5, "found AND, expected a property, a literal"),
        ("a = 1 AND\n  (b = 2", 2, 9, "ends where ) or an operator is expected"),
        ("a = 1 AND\n  (b = 2 c", 2, 10, "found c, expected ) or an operator"),
        ("a NOT 5", 1, 7, "found 5, expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN"),
        ("a IS 5", 1, 6, "found 5, expected NULL or NOT NULL"),
        ("a IS NOT", 1, 9, "ends where NULL is expected"),
        ("a BETWEEN 1 OR 2", 1, 13, "found OR, expected AND between the bounds"),
        ("a BETWEEN 2 AND 1", 1, 11, "wrong way round"),
        ("a IN 5", 1, 6, "found 5, expected ( and a list of texts"),
        ("a IN (5)", 1, 7, "found 5, expected a text in single quotes"),
        ("a IN ('5' '6')", 1, 11, "found '6', expected , or )"),
        ("'a' IN ('a')", 1, 1, "only a property may stand in front of IN"),
        ("a CONTAINS b", 1, 12, "found b, expected a text"),
        ("a > 'b'", 1, 5, "a text has no order"),
        ("(a = 1) > 5", 1, 1, "a condition has no order"),
        ("a = NULL", 1, 5, "IS NULL"),
        ("TRUE = 'true'", 1, 8, "cannot be compared with a number or a text"),
        ("a = 1 AND 'b'", 1, 11, "a value, where a condition is expected"),
        ("-a", 1, 1, "a value, where a condition is expected"),
        ("a != 1", 1, 3, "unequal is written <>"),
        ("a == 1", 1, 4, "found =, expected a property"),
        ("ä = 1", 1, 1, "no token begins with 'ä'"),
        ("a = 'äö' AND \"b\" = 1", 1, 14, "single quotes"),
        ("a = 'b", 1, 5, "no closing quote"),
        ("a = 1 && b = 2", 1, 7, "write AND"),
        ("a = 0.0", 1, 5, "write 0"),
        ("a = 1e999", 1, 5, "greater than the greatest decimal"),
        ("a = 9223372036854775808", 1, 5, "beyond 64 bits"),
    ];
    for (expression, line, column, part) in table {
        let error = Expression::compile(expression).unwrap_err();
        assert_eq!((error.position.line, error.position.column), (line, column), "{expression:?}: {error}");
        assert!(error.problem.contains(part), "{expression:?}: {error}");
    }
    let error = Expression::compile("a !").unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 3: no token begins with '!'");
}

#[test]
fn what_follows_an_expression_is_told() {
    assert_eq!(Expression::compile("a = 1 ").unwrap().ignored_from(), None);
    assert_eq!(Expression::compile("a = 1\n b").unwrap().ignored_from(), Some(Position { line: 2, column: 2 }));
}

#[test]
fn size_and_depth_are_bounded() {
    let longest = format!("a = '{}'", "x".repeat(MAX_EXPRESSION_BYTES - 6));
    assert!(Expression::compile(&longest).is_ok());
    let error = Expression::compile(&(longest + " ")).unwrap_err();
    assert!(error.problem.contains("65537") && error.problem.contains("65536"), "{error}");
    let run = || {
        let deep = |levels: usize| {
            let nested = format!("{}a = 1{}", "(".repeat(levels), ")".repeat(levels));
            let signs = format!("{}a = 1", "NOT ".repeat(levels));
            let minuses = format!("a = {}b", "- ".repeat(levels));
            let chain = format!("a{}", " IS NULL".repeat(levels));
            let mixed = format!("{}a = 1{}", "NOT (b = 1 AND ".repeat(levels / 2), ")".repeat(levels / 2));
            [nested, signs, minuses, chain, mixed]
        };
        for text in deep(150) {
            Expression::compile(&text).unwrap().evaluate("a\u{1}1\u{2}b\u{1}1");
        }
        for text in deep(5_000) {
            let error = Expression::compile(&text).unwrap_err();
            assert!(error.problem.contains("nested deeper than 200"), "{error}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    thread.join().unwrap();
}

#[test]
fn long_chains_and_many_names() {
    let chain: Vec<String> = (0..6_000).map(|number| format!("a={number}")).collect();
    let any = Expression::compile(&chain.join(" OR ")).unwrap();
    assert!(any.matches("a\u{1}5999") && !any.matches("a\u{1}6000"));
    let names: Vec<String> = (0..2_000).map(|number| format!("n{number}={number}")).collect();
    let all = Expression::compile(&names.join(" AND ")).unwrap();
    let properties: Vec<String> = (0..2_000).map(|number| format!("n{number}\u{1}{number}")).collect();
    assert!(all.matches(&properties.join("\u{2}")));
    assert!(!all.matches(&properties[1..].join("\u{2}")));
}

/// Neither garbage nor what is made of the language's own parts brings the compiler or an evaluation down.
#[test]
fn garbage_is_refused_or_evaluated() {
    const BITS: [&str; 34] = [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
        "=",
        "<>",
        ">",
        ">=",
        "<",
        "<=",
        "(",
        ")",
        ",",
        "+",
        "-",
        "5",
        "9223372036854775807",
        "2.5",
        "'a'",
        "''",
        "a",
        "b",
        "--",
        "/*",
        "'",
        "é",
    ];
    let mut compiled = 0;
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let text: String = if seed % 4 == 0 {
            (0..random.usize(..40)).map(|_| random.char('\0'..='\u{ff}')).collect()
        } else {
            let bits: Vec<&str> = (0..random.usize(..10)).map(|_| BITS[random.usize(..BITS.len())]).collect();
            bits.join(" ")
        };
        if let Ok(expression) = Expression::compile(&text) {
            compiled += 1;
            for properties in ["", "a\u{1}5\u{2}b\u{1}x", "\u{1}\u{2}a\u{1}\u{1}\u{2}b"] {
                expression.evaluate(properties);
            }
        }
    }
    assert!(compiled > 500, "{compiled}");
}
