//! `${...}` in texts.

use std::collections::BTreeMap;

use super::{Kind, Value, Wrong, nearest};
use crate::expression::Expression;

/// Parameters by name. They are scalars.
pub(crate) type Parameters = BTreeMap<String, Value>;

/// Fills in `${name}` and `${expression}` in all texts of `value`. A text that is nothing but one of them
/// becomes what it stands for: `"${mtu}"` a number. `$${` stands for `${`.
pub(crate) fn substitute(value: &mut Value, parameters: &Parameters) -> Result<(), Wrong> {
    match &mut value.kind {
        Kind::Text(text) => {
            if let Some(kind) = fill_text(text, parameters)
                .map_err(|(message, help)| Wrong::new(value.span.clone(), message, help))?
            {
                value.kind = kind;
            }
            Ok(())
        }
        Kind::List(items) => items.iter_mut().try_for_each(|item| substitute(item, parameters)),
        Kind::Table(table) => table.0.iter_mut().try_for_each(|(_, value)| substitute(value, parameters)),
        Kind::Integer(_) | Kind::Float(_) | Kind::Boolean(_) => Ok(()),
    }
}

/// What `text` becomes; `None` if nothing is to be filled in.
fn fill_text(text: &str, parameters: &Parameters) -> Result<Option<Kind>, (String, String)> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let Some(length) = rest[at..].find('}') else {
            return Err(("`${` without `}`".into(), "write ${NAME}, or $${ for the shell's own".into()));
        };
        let kind = evaluate(&rest[at + 2..at + length], parameters)?;
        if at == 0 && length + 1 == text.len() {
            return Ok(Some(kind));
        }
        filled.push_str(&rest[..at]);
        filled.push_str(&Value { span: 0..0, kind }.to_string());
        rest = &rest[at + length + 1..];
    }
    filled.push_str(rest);
    Ok(Some(Kind::Text(filled)))
}

fn evaluate(text: &str, parameters: &Parameters) -> Result<Kind, (String, String)> {
    if let Some(value) = parameters.get(text.trim()) {
        return Ok(value.kind.clone());
    }
    let expression = Expression::parse(text)
        .map_err(|error| (format!("${{{text}}}: {}", error.message), HELP.to_owned()))?;
    if let Some(unknown) = expression.names().into_iter().find(|name| !parameters.contains_key(*name)) {
        return Err((format!("there is no parameter {unknown}"), known(unknown, parameters)));
    }
    let number = |name: &str| match parameters.get(name)?.kind {
        Kind::Integer(number) => Some(vec![number as f64]),
        Kind::Float(number) => Some(vec![number]),
        _ => None,
    };
    let value = expression
        .evaluate(&number)
        .map_err(|_| (format!("${{{text}}} is no number"), "only numbers can be reckoned with".to_owned()))?;
    if value.abs() >= LARGEST {
        let message = format!("${{{text}}} is too large to be calculated exactly");
        return Err((message, format!("stay below {LARGEST}")));
    }
    Ok(if value.fract() == 0.0 { Kind::Integer(value as i64) } else { Kind::Float(value) })
}

fn known(unknown: &str, parameters: &Parameters) -> String {
    match nearest(unknown, parameters.keys().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => {
            let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
            format!("there are {}; the shell's own is written $${{...}}", known.join(", "))
        }
    }
}

/// Whole numbers up to here are exact in a double.
const LARGEST: f64 = 9_007_199_254_740_992.0;
const HELP: &str = "write ${NAME}, or a calculation with numbers; the shell's own is written $${...}";

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<Kind, String> {
        let value = |kind| Value { span: 0..0, kind };
        let parameters = Parameters::from([
            ("mtu".to_owned(), value(Kind::Integer(1500))),
            ("format".to_owned(), value(Kind::Text("dqo-rda".into()))),
        ]);
        let mut value = Value { span: 3..9, kind: Kind::Text(text.into()) };
        substitute(&mut value, &parameters).map_err(|wrong| wrong.message).map(|()| value.kind)
    }

    #[test]
    fn parameters_keep_their_type_where_they_stand_alone() {
        assert_eq!(filled("${mtu}"), Ok(Kind::Integer(1500)));
        assert_eq!(filled("${ mtu + 14 }"), Ok(Kind::Integer(1514)));
        assert_eq!(filled("${mtu / 1000}"), Ok(Kind::Float(1.5)));
        assert_eq!(filled("mtu ${mtu}, ${format}"), Ok(Kind::Text("mtu 1500, dqo-rda".into())));
        assert_eq!(filled("x=$${x} $y"), Ok(Kind::Text("x=${x} $y".into())));
    }

    #[test]
    fn mistakes_are_told() {
        assert_eq!(filled("${mut}"), Err("there is no parameter mut".into()));
        assert_eq!(filled("${mtu"), Err("`${` without `}`".into()));
        assert_eq!(filled("${format * 2}"), Err("${format * 2} is no number".into()));
        assert!(filled("${9223372036854775807 * 2}").unwrap_err().contains("too large"));
        assert!(filled("${x:-1}").unwrap_err().starts_with("${x:-1}: "));
    }
}
