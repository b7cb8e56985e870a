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

#[test]
fn results_are_those_of_java() {
    let mut sets = Vec::new();
    let (mut compared, mut refused, mut matching, mut wrong) = (0, 0, 0, Vec::new());
    for row in JAVA_RESULTS.lines() {
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
