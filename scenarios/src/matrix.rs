//! From one file to its cases: parameters, the matrix, what is excluded from it, variants and defaults.

use std::collections::BTreeSet;

use crate::model::Scenario;
use crate::tree::{self, Key, Kind, Parameters, Table, Value, Wrong, nearest};

/// All cases of a file.
pub(crate) struct Cases {
    body: Table,
    length: usize,
    defaults: Table,
    parameters: Table,
    variants: Vec<Conditional>,
    points: Vec<Point>,
}

/// One case.
pub(crate) struct Case<'a> {
    cases: &'a Cases,
    point: &'a Point,
}

/// One point of the matrix.
#[derive(Clone, Default)]
struct Point {
    kernel: String,
    /// Axis and how the point is called on it, in the order of the axes; without the kernel.
    labels: Vec<(String, String)>,
    /// What the axes set.
    values: Vec<(String, Value)>,
}

/// A table with what must be so for it to count.
struct Conditional {
    when: Table,
    table: Table,
}

impl Cases {
    /// Takes a file apart. `length` is that of its text.
    pub(crate) fn new(mut body: Table, length: usize, kernels: &[String]) -> Result<Cases, Wrong> {
        let matrix = take_table(&mut body, "matrix")?;
        let defaults = take_table(&mut body, "defaults")?;
        check_defaults(&defaults)?;
        let parameters = take_table(&mut body, "parameters")?;
        for (key, value) in &parameters.0 {
            check_parameter(key, value)?;
        }
        let mut points = vec![Point::default()];
        for (key, value) in &matrix.0 {
            points = along(points, key, value, kernels)?;
        }
        if matrix.get("kernel").is_none() {
            points = with_kernels(points, kernels, &[DEFAULT_KERNEL.to_owned()]);
        }
        let variants = conditionals(&mut body, "variant")?;
        let excludes = conditionals(&mut body, "exclude")?;
        let mut cases = Cases { body, length, defaults, parameters, variants, points };
        for condition in cases.variants.iter().chain(&excludes) {
            cases.check_condition(&condition.when)?;
        }
        for exclude in &excludes {
            cases.check_values(&exclude.when)?;
        }
        let kept = |point: &Point| {
            let parameters = cases.parameters_at(point)?;
            Ok(!excludes.iter().any(|exclude| applies(&exclude.when, &parameters)))
        };
        let kept: Vec<bool> = cases.points.iter().map(kept).collect::<Result<_, Wrong>>()?;
        let mut kept = kept.into_iter();
        cases.points.retain(|_| kept.next().unwrap_or(true));
        // With kernels from the command line a file may well have nothing to do.
        if let (true, true, Some(exclude)) = (cases.points.is_empty(), kernels.is_empty(), excludes.first()) {
            let span = exclude.when.0.first().map_or(0..0, |(key, _)| key.span.clone());
            return Err(Wrong::new(span, "every case is excluded", "leave one, or remove the file"));
        }
        Ok(cases)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Case<'_>> {
        self.points.iter().map(|point| Case { cases: self, point })
    }

    /// A condition is about parameters that exist.
    fn check_condition(&self, when: &Table) -> Result<(), Wrong> {
        let parameters = match self.points.first() {
            Some(point) => self.parameters_at(point)?,
            None => return Ok(()),
        };
        for (key, _) in &when.0 {
            if !parameters.contains_key(&key.name) {
                let known = parameters.keys().map(String::as_str);
                let help = match nearest(&key.name, known.clone()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
                };
                return Err(Wrong::new(
                    key.span.clone(),
                    format!("there is no parameter or axis {}", key.name),
                    help,
                ));
            }
        }
        Ok(())
    }

    /// What is excluded occurs: a value that no case has is misspelt. Kernels are not asked for: the command line may
    /// name others.
    fn check_values(&self, when: &Table) -> Result<(), Wrong> {
        let all: Vec<Parameters> =
            self.points.iter().map(|point| self.parameters_at(point)).collect::<Result<_, _>>()?;
        for (key, wanted) in when.0.iter().filter(|(key, _)| key.name != "kernel") {
            let wanted = match &wanted.kind {
                Kind::List(any) => any.iter().collect(),
                _ => vec![wanted],
            };
            let values: BTreeSet<String> =
                all.iter().filter_map(|parameters| Some(parameters.get(&key.name)?.to_string())).collect();
            if let Some(never) = wanted.into_iter().find(|wanted| !values.contains(&wanted.to_string())) {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                let message = format!("{} is never {never}", key.name);
                return Err(Wrong::new(never.span.clone(), message, format!("it is {}", values.join(", "))));
            }
        }
        Ok(())
    }

    /// All parameters at a point: what the axes set, what the file sets, and what variants set instead.
    fn parameters_at(&self, point: &Point) -> Result<Parameters, Wrong> {
        let kernel = Value { span: 0..0, kind: Kind::Text(point.kernel.clone()) };
        let mut parameters: Parameters = point.values.iter().cloned().collect();
        parameters.insert("kernel".into(), kernel);
        let own = |name: &str| !point.values.iter().any(|(axis, _)| axis == name) && name != "kernel";
        let mut set = self.parameters.clone();
        for variant in &self.variants {
            if let Some(Value { kind: Kind::Table(changed), .. }) = variant.table.get("parameters")
                && applies(&variant.when, &parameters)
            {
                tree::merge(&mut set, changed.clone());
            }
        }
        let (given, made): (Vec<_>, Vec<_>) = set
            .0
            .into_iter()
            .filter(|(key, _)| own(&key.name))
            .partition(|(_, value)| value.text().is_none_or(|text| !text.contains("${")));
        parameters.extend(given.into_iter().map(|(key, value)| (key.name, value)));
        let known = parameters.clone();
        for (key, mut value) in made {
            tree::substitute(&mut value, &known)?;
            parameters.insert(key.name, value);
        }
        Ok(parameters)
    }
}

impl Case<'_> {
    /// `mtu=1500,format=dqo-rda`; empty when the file has only one case besides its kernels.
    pub(crate) fn label(&self) -> String {
        self.point.labels.iter().map(|(axis, label)| format!("{axis}={label}")).collect::<Vec<_>>().join(",")
    }

    /// The scenario with everything filled in.
    pub(crate) fn scenario(&self) -> Result<Scenario, Wrong> {
        let parameters = self.cases.parameters_at(self.point)?;
        let mut body = self.cases.body.clone();
        for variant in self.cases.variants.iter().filter(|variant| applies(&variant.when, &parameters)) {
            let mut table = variant.table.clone();
            table.take("parameters");
            tree::merge(&mut body, table);
        }
        let mut body = Value { span: 0..self.cases.length, kind: Kind::Table(body) };
        tree::substitute(&mut body, &parameters)?;
        let Value { kind: Kind::Table(mut body), span } = body else { unreachable!("it was made a table") };
        list_guests(&mut body);
        let mut defaults = Value { span: 0..0, kind: Kind::Table(self.cases.defaults.clone()) };
        tree::substitute(&mut defaults, &parameters)?;
        if let Kind::Table(defaults) = &defaults.kind {
            fill_defaults(&mut body, defaults);
        }
        let mut scenario: Scenario = tree::decode(body, span)?;
        scenario.kernel.clone_from(&self.point.kernel);
        scenario.case = self.point.labels.iter().cloned().collect();
        Ok(scenario)
    }
}

/// Multiplies `points` by what `axis` has.
fn along(points: Vec<Point>, axis: &Key, value: &Value, kernels: &[String]) -> Result<Vec<Point>, Wrong> {
    let help = format!("write {} = [1500, 9000], or a list of tables with a name", axis.name);
    let items = match &value.kind {
        Kind::List(items) if !items.is_empty() => items,
        _ => return Err(Wrong::new(value.span.clone(), "an axis of the matrix is a list of values", help)),
    };
    if axis.name == "kernel" {
        let own: Option<Vec<String>> = items.iter().map(|item| item.text().map(str::to_owned)).collect();
        let help = "write kernel = [\"debian:6.12\"]";
        let own = own.ok_or_else(|| Wrong::new(value.span.clone(), "kernels are texts", help))?;
        return Ok(with_kernels(points, kernels, &own));
    }
    let mut product = Vec::new();
    for point in &points {
        for item in items {
            let mut point = point.clone();
            match &item.kind {
                Kind::Table(table) => {
                    let mut table = table.clone();
                    let name = table.take("name").filter(|name| name.text().is_some());
                    let missing = || Wrong::new(item.span.clone(), "a table on an axis needs a name", &help);
                    let name = name.ok_or_else(missing)?;
                    point.labels.push((axis.name.clone(), name.to_string()));
                    point.values.push((axis.name.clone(), name));
                    for (key, value) in table.0 {
                        check_parameter(&key, &value)?;
                        point.values.push((key.name, value));
                    }
                }
                Kind::List(_) => return Err(Wrong::new(item.span.clone(), "a list is no parameter", help)),
                _ => {
                    check_parameter(axis, item)?;
                    point.labels.push((axis.name.clone(), item.to_string()));
                    point.values.push((axis.name.clone(), item.clone()));
                }
            }
            product.push(point);
        }
    }
    if product.len() > MOST_CASES {
        let message = format!("the matrix has more than {MOST_CASES} cases");
        return Err(Wrong::new(axis.span.clone(), message, "split the file"));
    }
    Ok(product)
}

fn with_kernels(points: Vec<Point>, chosen: &[String], own: &[String]) -> Vec<Point> {
    let kernels = if chosen.is_empty() { own } else { chosen };
    let on = |kernel: &String| {
        let kernel = kernel.clone();
        points.iter().map(move |point| Point { kernel: kernel.clone(), ..point.clone() })
    };
    kernels.iter().flat_map(on).collect()
}

fn check_parameter(key: &Key, value: &Value) -> Result<(), Wrong> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !key.name.chars().all(is_name) || key.name.starts_with(|first: char| first.is_ascii_digit()) {
        let message = format!("{} cannot be the name of a parameter", key.name);
        return Err(Wrong::new(key.span.clone(), message, "use letters, digits and _"));
    }
    match value.kind {
        Kind::List(_) | Kind::Table(_) => Err(Wrong::new(
            value.span.clone(),
            format!("the parameter {} is not a text, a number or a boolean", key.name),
            "lists of values stand in [matrix]",
        )),
        _ => Ok(()),
    }
}

fn take_table(body: &mut Table, name: &str) -> Result<Table, Wrong> {
    match body.take(name) {
        None => Ok(Table::default()),
        Some(Value { kind: Kind::Table(table), .. }) => Ok(table),
        Some(Value { span, .. }) => {
            Err(Wrong::new(span, format!("{name} is a table"), format!("write it as [{name}]")))
        }
    }
}

fn conditionals(body: &mut Table, name: &str) -> Result<Vec<Conditional>, Wrong> {
    let Some(value) = body.take(name) else { return Ok(Vec::new()) };
    let wrong =
        |span| Wrong::new(span, format!("{name} is a list of tables"), format!("write it as [[{name}]]"));
    let Kind::List(items) = value.kind else { return Err(wrong(value.span)) };
    let take = |item: Value| {
        let Kind::Table(mut table) = item.kind else { return Err(wrong(item.span)) };
        if name == "exclude" {
            return Ok(Conditional { when: table, table: Table::default() });
        }
        match table.take("when") {
            Some(Value { kind: Kind::Table(when), .. }) => Ok(Conditional { when, table }),
            _ => Err(Wrong::new(item.span, "a variant says when it counts", "add when = { mtu = 9000 }")),
        }
    };
    items.into_iter().map(take).collect()
}

/// Whether all that `when` says is so; a list stands for any of its values.
fn applies(when: &Table, parameters: &Parameters) -> bool {
    when.0.iter().all(|(key, wanted)| {
        let Some(value) = parameters.get(&key.name) else { return false };
        match &wanted.kind {
            Kind::List(any) => any.iter().any(|wanted| matches(&key.name, wanted, value)),
            _ => matches(&key.name, wanted, value),
        }
    })
}

/// A kernel's name also stands for the more exact ones: `debian:6.12` for `debian:6.12.117`.
fn matches(name: &str, wanted: &Value, value: &Value) -> bool {
    let (wanted, value) = (wanted.to_string(), value.to_string());
    let more_exact = |rest: &str| rest.is_empty() || rest.starts_with('.');
    if name == "kernel" { value.strip_prefix(&wanted).is_some_and(more_exact) } else { value == wanted }
}

/// `[guest]` is short for a list with one guest.
fn list_guests(body: &mut Table) {
    if let Some(guest) = body.get_mut("guest")
        && let Kind::Table(table) = &mut guest.kind
    {
        let one = Value { span: guest.span.clone(), kind: Kind::Table(std::mem::take(table)) };
        guest.kind = Kind::List(vec![one]);
    }
}

fn check_defaults(defaults: &Table) -> Result<(), Wrong> {
    for (key, value) in &defaults.0 {
        if !DEFAULTED.contains(&key.name.as_str()) {
            let message = format!("there are no defaults for {}", key.name);
            return Err(Wrong::new(key.span.clone(), message, format!("there are {}", DEFAULTED.join(", "))));
        }
        if !matches!(value.kind, Kind::Table(_)) {
            let help = format!("write [defaults.{}]", key.name);
            return Err(Wrong::new(value.span.clone(), "defaults are tables", help));
        }
    }
    Ok(())
}

/// Gives guests, NICs, links, namespaces, their devices and streams what `[defaults]` says and they do not.
fn fill_defaults(body: &mut Table, defaults: &Table) {
    for (key, value) in &defaults.0 {
        let Kind::Table(values) = &value.kind else { continue };
        match key.name.as_str() {
            "guest" | "nic" => {
                let tables = body.get_mut(&key.name).map_or(Vec::new(), Value::tables_mut);
                tables.into_iter().for_each(|table| tree::fill(table, values));
            }
            "stream" => each_step(body, &mut |step| {
                step.get_mut("stream")
                    .map_or(Vec::new(), Value::tables_mut)
                    .into_iter()
                    .for_each(|table| tree::fill(table, values));
            }),
            "device" => each_named(body, "namespace", &mut |namespace| {
                let devices = namespace.get_mut("device").map_or(Vec::new(), Value::tables_mut);
                devices.into_iter().for_each(|device| tree::fill(device, values));
            }),
            named => each_named(body, named, &mut |table| tree::fill(table, values)),
        }
    }
}

fn each_named(body: &mut Table, name: &str, change: &mut dyn FnMut(&mut Table)) {
    if let Some(Value { kind: Kind::Table(named), .. }) = body.get_mut(name) {
        named.0.iter_mut().flat_map(|(_, value)| value.tables_mut()).for_each(change);
    }
}

fn each_step(table: &mut Table, change: &mut dyn FnMut(&mut Table)) {
    for inside in ["step", "parallel", "sequence"] {
        for step in table.get_mut(inside).map_or(Vec::new(), Value::tables_mut) {
            change(step);
            each_step(step, change);
        }
    }
}

/// The kernel of files and users that name none.
pub const DEFAULT_KERNEL: &str = "debian:6.12";
const DEFAULTED: [&str; 6] = ["guest", "nic", "link", "namespace", "device", "stream"];
const MOST_CASES: usize = 1000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::load::parse;
    use crate::source::LoadError;

    fn cases(text: &str, kernels: &[&str]) -> Vec<crate::Scenario> {
        let kernels: Vec<String> = kernels.iter().map(|kernel| (*kernel).to_owned()).collect();
        match parse(Path::new("m.toml"), text, &kernels) {
            Ok(scenarios) => scenarios,
            Err(LoadError::Mistake(mistake)) => panic!("{}", mistake.one_line()),
            Err(other) => panic!("{other}"),
        }
    }

    const MATRIX: &str = "
description = 'x'
[parameters]
frame = '${mtu + 14}'
[matrix]
kernel = ['debian:6.1', 'debian:6.12']
mtu = [1500, 9000]
size = [{ name = 'small', gso = 65536 }, { name = 'big', gso = 185000 }]
[[exclude]]
kernel = 'debian:6.1'
size = 'big'
[[step]]
run = 'echo ${mtu} ${frame} ${gso}'
[[variant]]
when = { mtu = 9000 }
[[variant.step]]
run = 'jumbo'
";

    #[test]
    fn the_matrix_is_multiplied_out() {
        let all = cases(MATRIX, &[]);
        let names: Vec<_> = all.iter().map(|case| format!("{} {}", case.kernel, case.name)).collect();
        assert_eq!(
            names,
            [
                "debian:6.1 m[mtu=1500,size=small]",
                "debian:6.1 m[mtu=9000,size=small]",
                "debian:6.12 m[mtu=1500,size=small]",
                "debian:6.12 m[mtu=1500,size=big]",
                "debian:6.12 m[mtu=9000,size=small]",
                "debian:6.12 m[mtu=9000,size=big]",
            ]
        );
        let run = |case: &crate::Scenario| case.steps[0].get_ref().run.as_ref().unwrap().get_ref().clone();
        assert_eq!(run(&all[3]), "echo 1500 1514 185000");
        assert_eq!((all[3].steps.len(), all[5].steps.len()), (1, 2));
        assert_eq!(all[5].case["size"], "big");
    }

    #[test]
    fn kernels_of_the_command_line_take_the_place_of_the_files() {
        assert_eq!(cases(MATRIX, &["debian:6.1.170"]).len(), 2, "the exclusion holds for the exact version");
        assert_eq!(cases(MATRIX, &["debian:7.3", "debian:6.18"]).len(), 8);
    }

    #[test]
    fn defaults_reach_what_they_are_for() {
        let text = "
description = 'x'
[defaults.nic]
kind = 'gve'
[defaults.namespace]
mtu = 9000
[defaults.stream]
bytes = '1M'
[[nic]]
[[nic]]
kind = 'virtio'
[namespace.a]
interface = 'eth0'
[namespace.b]
interface = 'eth1'
mtu = 1500
[[step]]
parallel = [{ stream = { from = 'a', to = 'b', address = '192.0.2.2' } }]
";
        let case = &cases(text, &[])[0];
        assert_eq!(case.nics[0].get_ref()["kind"], "gve");
        assert_eq!(case.nics[1].get_ref()["kind"], "virtio");
        assert_eq!(case.namespaces["a"].get_ref().mtu, Some(9000));
        assert_eq!(case.namespaces["b"].get_ref().mtu, Some(1500));
        let stream = case.steps[0].get_ref().parallel[0].get_ref().stream.as_ref().unwrap().get_ref();
        assert_eq!(stream.bytes.0, 1 << 20);
    }
}
