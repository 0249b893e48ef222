//! Finding lines in a source file, and changing them.
//!
//! A pattern is one or more whole lines. White space counts only as a gap between words, so that indentation
//! need not be got right. What a pattern names must be there once: a change that could go to two places, or to
//! none, is a mistake of whoever wrote the edit.

use std::ops::Range;

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Puts text behind the lines.
    InsertAfter { lines: String, text: String },
    /// Puts text before the lines.
    InsertBefore { lines: String, text: String },
    /// Puts text in place of what is there.
    Replace { target: Target, text: String },
    /// Removes what is there.
    Delete { target: Target },
}

/// Lines that are taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The lines, or the first ones of a region.
    pub(super) lines: String,
    /// The last lines of a region: the first that are like this after `lines`.
    pub(super) through: Option<String>,
}

impl Change {
    /// The change that takes this one back, or why there is none.
    pub(super) fn undone(&self) -> Result<Change, &'static str> {
        match self {
            Change::InsertAfter { text, .. } | Change::InsertBefore { text, .. } => {
                Ok(Change::Delete { target: Target { lines: text.clone(), through: None } })
            }
            Change::Replace { target: Target { lines, through: None }, text } => {
                let target = Target { lines: text.clone(), through: None };
                Ok(Change::Replace { target, text: lines.clone() })
            }
            Change::Replace { .. } => Err("it replaces a region without telling what is in it"),
            Change::Delete { .. } => Err("it deletes lines without telling where they belong"),
        }
    }
}

/// Carries out a change in a file's text, within one function of it if one is named. The error tells why it
/// cannot be done.
pub(super) fn apply(source: &str, within: Option<&str>, change: &Change) -> Result<String, String> {
    let lines: Vec<&str> = source.lines().collect();
    let scope = match within {
        Some(function) => find_function(&lines, function)?,
        None => 0..lines.len(),
    };
    let (gap, text) = match change {
        Change::InsertAfter { lines: pattern, text } => {
            let found = find(&lines, &scope, pattern)?;
            (found.end..found.end, text.as_str())
        }
        Change::InsertBefore { lines: pattern, text } => {
            let found = find(&lines, &scope, pattern)?;
            (found.start..found.start, text.as_str())
        }
        Change::Replace { target, text } => (find_target(&lines, &scope, target)?, text.as_str()),
        Change::Delete { target } => (find_target(&lines, &scope, target)?, ""),
    };
    let mut result = String::with_capacity(source.len() + text.len() + 1);
    for line in lines[..gap.start].iter().copied().chain(text.lines()).chain(lines[gap.end..].iter().copied())
    {
        result.push_str(line);
        result.push('\n');
    }
    Ok(result)
}

fn find_target(lines: &[&str], scope: &Range<usize>, target: &Target) -> Result<Range<usize>, String> {
    let first = find(lines, scope, &target.lines)?;
    let Some(through) = &target.through else {
        return Ok(first);
    };
    let wanted = normalised(through);
    let last = matches(lines, &(first.end..scope.end), &wanted).next();
    last.map(|last| first.start..last + wanted.len())
        .ok_or_else(|| format!("after line {} there is no {}", first.end, quoted(&wanted)))
}

/// The one place where the pattern's lines are.
fn find(lines: &[&str], scope: &Range<usize>, pattern: &str) -> Result<Range<usize>, String> {
    let wanted = normalised(pattern);
    let mut places = matches(lines, scope, &wanted);
    let Some(first) = places.next() else {
        return Err(format!("there is no {}{}", quoted(&wanted), nearest(lines, scope, &wanted)));
    };
    let others: Vec<String> = places.map(|place| (place + 1).to_string()).collect();
    if others.is_empty() {
        return Ok(first..first + wanted.len());
    }
    Err(format!(
        "{} is there {} times, at lines {} and {}; add a line of its surroundings, or name the function with within",
        quoted(&wanted),
        others.len() + 1,
        first + 1,
        others.join(", ")
    ))
}

fn matches<'a>(
    lines: &'a [&str],
    scope: &Range<usize>,
    wanted: &'a [String],
) -> impl Iterator<Item = usize> + 'a {
    let last = (scope.end + 1).saturating_sub(wanted.len());
    (scope.start..last).filter(move |&start| {
        wanted.iter().zip(&lines[start..]).all(|(wanted, line)| *wanted == normalise(line))
    })
}

/// The lines of a function's definition, as the kernel's style has it: the name and its closing brace are not
/// indented.
fn find_function(lines: &[&str], name: &str) -> Result<Range<usize>, String> {
    let calls_itself = |line: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            line[at + name.len()..].starts_with('(')
                && !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
        })
    };
    let is_head = |&start: &usize| {
        let line = lines[start];
        if line.starts_with([' ', '\t', '#', '/', '*', '}']) || !calls_itself(line) {
            return false;
        }
        // A declaration ends with a semicolon before any brace.
        let rest = lines[start..].iter().take(LONGEST_HEAD);
        rest.map(|line| line.trim_end()).find(|line| line.ends_with(';') || *line == "{") == Some("{")
    };
    let mut heads = (0..lines.len()).filter(is_head);
    let start = heads.next().ok_or_else(|| format!("there is no function {name}"))?;
    if let Some(second) = heads.next() {
        return Err(format!("function {name} is there twice, at lines {} and {}", start + 1, second + 1));
    }
    let length = lines[start..].iter().position(|line| line.starts_with('}'));
    length.map(|length| start..start + length + 1).ok_or_else(|| format!("function {name} does not end"))
}

/// What the writer of the pattern may have meant.
fn nearest(lines: &[&str], scope: &Range<usize>, wanted: &[String]) -> String {
    let Some(first) = wanted.iter().max_by_key(|line| line.len()) else {
        return String::new();
    };
    let likeness = |index: usize| {
        let line = normalise(lines[index]);
        let shared = |other: &str| line.split(' ').any(|word| word == other);
        let common = first.split(' ').filter(|word| shared(word)).map(str::len).sum::<usize>();
        if line.contains(first.as_str()) { first.len() + common } else { common }
    };
    let best = scope
        .clone()
        .map(|index| (likeness(index), index))
        .max_by_key(|&(likeness, index)| (likeness, std::cmp::Reverse(index)));
    match best {
        Some((likeness, index)) if likeness * 2 >= first.len() => {
            format!("; most like it is line {}: `{}`", index + 1, normalise(lines[index]))
        }
        _ => String::new(),
    }
}

fn normalised(pattern: &str) -> Vec<String> {
    pattern.trim().lines().map(normalise).collect()
}

fn normalise(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn quoted(wanted: &[String]) -> String {
    match wanted {
        [line] => format!("line `{line}`"),
        [first, ..] => format!("`{first}` with the {} lines that follow it in the edit", wanted.len() - 1),
        [] => "line".to_owned(),
    }
}

/// Lines from a function's name to its opening brace.
const LONGEST_HEAD: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: &str = "int helper(int a);\n\nint helper(int a)\n{\n\treturn  a;\n}\n\nint other(void)\n{\n\tif (x)\n\t\thelper(1);\n\treturn  a;\n}\n";

    fn delete(lines: &str, through: Option<&str>) -> Change {
        let through = through.map(str::to_owned);
        Change::Delete { target: Target { lines: lines.to_owned(), through } }
    }

    #[test]
    fn lines_are_inserted_replaced_and_deleted() {
        let insert = Change::InsertAfter { lines: "  if (x)".into(), text: "\t\tone();\n\t\ttwo();".into() };
        assert!(apply(SOURCE, None, &insert).unwrap().contains("if (x)\n\t\tone();\n\t\ttwo();\n\t\thelper"));
        let insert = Change::InsertBefore { lines: "if (x)\nhelper(1);".into(), text: "\tbefore();".into() };
        assert!(apply(SOURCE, None, &insert).unwrap().contains("{\n\tbefore();\n\tif (x)"));
        let target = Target { lines: "helper(1);".into(), through: None };
        let replace = Change::Replace { target, text: "\t\thelper(2);\n".into() };
        assert_eq!(apply(SOURCE, None, &replace).unwrap(), SOURCE.replace("helper(1)", "helper(2)"));
        let gone = apply(SOURCE, None, &delete("if (x)", Some("return a;"))).unwrap();
        assert!(gone.ends_with("int other(void)\n{\n}\n"), "{gone}");
    }

    #[test]
    fn a_function_narrows_the_search() {
        let twice = apply(SOURCE, None, &delete("return a;", None)).unwrap_err();
        assert!(twice.contains("2 times, at lines 5 and 12"), "{twice}");
        let gone = apply(SOURCE, Some("other"), &delete("return a;", None)).unwrap();
        assert!(gone.ends_with("helper(1);\n}\n"), "{gone}");
        let gone = apply(SOURCE, Some("helper"), &delete("return a;", None)).unwrap();
        assert!(gone.contains("int helper(int a)\n{\n}\n"), "{gone}");
        let missing = apply(SOURCE, Some("elper"), &delete("return a;", None)).unwrap_err();
        assert!(missing.contains("no function elper"), "{missing}");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is_like_it() {
        let missing = apply(SOURCE, None, &delete("helper(1)", None)).unwrap_err();
        assert!(missing.contains("no line `helper(1)`; most like it is line 11: `helper(1);`"), "{missing}");
        let missing = apply(SOURCE, None, &delete("if (x)", Some("else"))).unwrap_err();
        assert!(missing.contains("after line 10 there is no line `else`"), "{missing}");
        let missing = apply(SOURCE, None, &delete("unlike()\nanything()", None)).unwrap_err();
        assert_eq!(missing, "there is no `unlike()` with the 1 lines that follow it in the edit");
    }

    #[test]
    fn only_what_tells_all_can_be_undone() {
        let insert = Change::InsertAfter { lines: "if (x)".into(), text: "\t\tone();".into() };
        let changed = apply(SOURCE, None, &insert).unwrap();
        assert_eq!(apply(&changed, None, &insert.undone().unwrap()).unwrap(), SOURCE);
        assert!(delete("if (x)", None).undone().is_err());
        let target = Target { lines: "if (x)".into(), through: Some("}".into()) };
        assert!(Change::Replace { target, text: String::new() }.undone().is_err());
    }

    proptest! {
        #[test]
        fn an_insertion_undone_leaves_the_source(
            lines in prop::collection::btree_set("[a-z]{1,6}", 1..20),
            place: prop::sample::Index,
            text in "[A-Z]{1,5}(\n[A-Z]{1,5}){0,3}",
        ) {
            let lines: Vec<String> = lines.into_iter().collect();
            let source: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let anchor = lines[place.index(lines.len())].clone();
            for change in [
                Change::InsertAfter { lines: anchor.clone(), text: text.clone() },
                Change::InsertBefore { lines: anchor.clone(), text: text.clone() },
            ] {
                let changed = apply(&source, None, &change).unwrap();
                prop_assert_eq!(changed.lines().count(), lines.len() + text.lines().count());
                prop_assert_eq!(apply(&changed, None, &change.undone().unwrap()).unwrap(), source.clone());
            }
        }

        #[test]
        fn no_pattern_and_no_source_is_too_strange(source: String, pattern: String, within in prop::option::of("[a-z(]{0,3}")) {
            let _ = apply(&source, within.as_deref(), &delete(&pattern, Some(&pattern)));
        }
    }
}
