//! Putting trees together.

use super::{Kind, Table, Value};

/// Lays `over` over `under`: tables are merged, lists of tables are joined with those of `under` first, and of
/// everything else what `over` says counts.
pub(crate) fn merge(under: &mut Table, over: Table) {
    for (key, value) in over.0 {
        match under.get_mut(&key.name) {
            None => under.0.push((key, value)),
            Some(below) => merge_value(below, value),
        }
    }
}

fn merge_value(below: &mut Value, above: Value) {
    match (&mut below.kind, above.kind) {
        (Kind::Table(below), Kind::Table(above)) => merge(below, above),
        (Kind::List(below), Kind::List(above)) if is_tables(below) && is_tables(&above) => {
            below.extend(above);
        }
        (_, kind) => *below = Value { span: above.span, kind },
    }
}

fn is_tables(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| matches!(item.kind, Kind::Table(_)))
}

/// Gives `table` what it does not have itself from `defaults`; tables inside are filled, too.
pub(crate) fn fill(table: &mut Table, defaults: &Table) {
    for (key, value) in &defaults.0 {
        match table.get_mut(&key.name) {
            None => table.0.push((key.clone(), value.clone())),
            Some(Value { kind: Kind::Table(own), .. }) => {
                if let Kind::Table(defaults) = &value.kind {
                    fill(own, defaults);
                }
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn spanless(table: &Table) -> String {
        let text = |value: &Value| -> String {
            match &value.kind {
                Kind::Table(table) => format!("{{{}}}", spanless(table)),
                Kind::List(items) => {
                    let items: Vec<_> = items
                        .iter()
                        .map(|item| match &item.kind {
                            Kind::Table(table) => format!("{{{}}}", spanless(table)),
                            _ => item.to_string(),
                        })
                        .collect();
                    format!("[{}]", items.join(" "))
                }
                _ => value.to_string(),
            }
        };
        table
            .0
            .iter()
            .map(|(key, value)| format!("{}={}", key.name, text(value)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn tables_are_merged_lists_of_tables_joined_and_the_rest_replaced() {
        let mut under = parse("a = 1\nb = [1]\n[t]\nx = 1\ny = 1\n[[l]]\nn = 1\n", 0).unwrap();
        merge(&mut under, parse("a = 2\nb = [2]\n[t]\nx = 2\n[[l]]\nn = 2\n[u]\n", 100).unwrap());
        assert_eq!(spanless(&under), "a=2 b=[2] t={x=2 y=1} l=[{n=1} {n=2}] u={}");
        assert_eq!(under.get("a").unwrap().span.start, 104, "it stands where it was written");
    }

    #[test]
    fn defaults_fill_what_is_not_there() {
        let mut table = parse("a = 1\n[t]\nx = 1\n", 0).unwrap();
        fill(&mut table, &parse("a = 2\nb = 2\n[t]\nx = 2\ny = 2\n", 0).unwrap());
        assert_eq!(spanless(&table), "a=1 t={x=1 y=2} b=2");
    }
}
