//! What is expected at the end, and tables.

use std::collections::BTreeSet;
use std::ops::Range;

use regex::Regex;
use toml::Spanned;

use super::step::measured;
use super::{check_bound, check_guest, unknown};
use crate::expression::{Expression, ExpressionError, Relation};
use crate::model::{Expect, LogExpectation, Scenario, Table};
use crate::tree::Wrong;

pub(super) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    let expect = &scenario.expect;
    for counter in &expect.counters {
        if counter.get_ref().bound().is_empty() {
            let message = format!("nothing is expected of the counter {}", counter.get_ref().name);
            return Err(Wrong::new(counter.span(), message, "add equals, at_least or at_most"));
        }
        check_bound(counter.span(), &counter.get_ref().bound())?;
    }
    for frames in &expect.frames {
        let sizes = frames.get_ref();
        if sizes.count.is_none()
            && sizes.largest.is_none()
            && sizes.smallest.is_none()
            && sizes.above.is_empty()
        {
            let message = format!("nothing is expected of the frames of {}", sizes.port);
            return Err(Wrong::new(frames.span(), message, "add count, largest, smallest or above"));
        }
        let above = sizes.above.iter().map(|above| &above.count);
        let bounds = [&sizes.count, &sizes.largest, &sizes.smallest].into_iter().flatten().chain(above);
        bounds.into_iter().try_for_each(|bound| check_bound(frames.span(), bound))?;
    }
    check_rules(expect)?;
    for log in &expect.log {
        check_log(scenario, log.get_ref(), &log.span())?;
    }
    expect.trouble.iter().try_for_each(check_pattern)?;
    if let Some(message) = expect.ending.as_ref().and_then(|ending| ending.message.as_ref()) {
        check_pattern(message)?;
    }
    let names = measured(&scenario.steps);
    for relation in &expect.relations {
        let parsed = Relation::parse(relation.get_ref());
        let parsed = parsed.map_err(|error| misread(relation, error))?;
        check_names(&parsed.names(), &names, &relation.span())?;
    }
    scenario.tables.iter().try_for_each(|table| check_table(table.get_ref(), &names, &table.span()))
}

/// What is forbidden is not expected.
fn check_rules(expect: &Expect) -> Result<(), Wrong> {
    let wanted = expect.findings.iter().chain(&expect.allowed_findings);
    let wanted: BTreeSet<&str> = wanted.map(|rule| rule.get_ref().as_str()).collect();
    match expect.forbidden_findings.iter().find(|rule| wanted.contains(rule.get_ref().as_str())) {
        None => Ok(()),
        Some(rule) => {
            let message = format!("{} is forbidden, and expected or allowed as well", rule.get_ref());
            Err(Wrong::new(rule.span(), message, "name it in one of the lists"))
        }
    }
}

fn check_log(scenario: &Scenario, log: &LogExpectation, span: &Range<usize>) -> Result<(), Wrong> {
    check_guest(scenario, log.guest.as_ref())?;
    if log.matches.is_none() && log.lacks.is_none() {
        return Err(Wrong::new(span.clone(), "nothing is expected of the log", "add matches or lacks"));
    }
    [&log.matches, &log.lacks].into_iter().flatten().try_for_each(check_pattern)
}

fn check_pattern(pattern: &Spanned<String>) -> Result<(), Wrong> {
    Regex::new(pattern.get_ref()).map(drop).map_err(|error| {
        // The last line says what is wrong; those before draw the pattern.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let message = format!("{:?} is not a regular expression: {reason}", pattern.get_ref());
        Wrong::new(pattern.span(), message, "write \\\\ before ( ) [ ] { } . * + ? that stand for themselves")
    })
}

fn check_table(table: &Table, names: &BTreeSet<&str>, span: &Range<usize>) -> Result<(), Wrong> {
    if table.columns.is_empty() {
        return Err(Wrong::new(span.clone(), "a table needs columns", "name them in columns = [...]"));
    }
    for row in &table.rows {
        let cells = row.get_ref();
        if cells.len() != table.columns.len() {
            let message = format!("{} cells stand below {} columns", cells.len(), table.columns.len());
            return Err(Wrong::new(row.span(), message, "give each column one cell"));
        }
        for cell in &cells[1..] {
            let parsed = Expression::parse(cell.get_ref()).map_err(|error| misread(cell, error))?;
            check_names(&parsed.names(), names, &cell.span())?;
        }
    }
    Ok(())
}

/// A name with a dot is a counter, and known later.
fn check_names(used: &[&str], known: &BTreeSet<&str>, span: &Range<usize>) -> Result<(), Wrong> {
    match used.iter().find(|name| !name.contains('.') && !known.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(unknown(span.clone(), "measurement", name, known.iter().copied())),
    }
}

/// Points into the text, behind its quotation mark.
fn misread(text: &Spanned<String>, error: ExpressionError) -> Wrong {
    let start = (text.span().start + 1 + error.span.start).min(text.span().end);
    let end = (start + error.span.len()).min(text.span().end);
    Wrong::new(start..end, error.message, "relations and cells are like: p99(b) >= 1.1 * a")
}
