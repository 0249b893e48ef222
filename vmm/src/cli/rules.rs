//! `nicvisor rules`.

use nicvisor_core::Rule;

use super::args::RulesArguments;
use super::failure::Failure;
use super::report::say;

pub(super) fn rules(arguments: &RulesArguments) -> Result<u8, Failure> {
    if arguments.json {
        let all: Vec<&Rule> = all().collect();
        say(&(serde_json::to_string_pretty(&all).expect("rules are plain data") + "\n"))?;
        return Ok(0);
    }
    let text: String = all()
        .map(|rule| {
            format!("{}\n    {}\n    {}\n    Source: {}\n\n", rule.id, rule.title, rule.meaning, rule.source)
        })
        .collect();
    say(&text)?;
    Ok(0)
}

/// All rules of all devices.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    nicvisor_net::rules::RULES.iter().chain(nicvisor_gve::rules::RULES).chain(nicvisor_mana::rules())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_an_id_of_its_own_and_a_source() {
        let ids: BTreeSet<&str> = all().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), all().count());
        assert!(all().all(|rule| !rule.source.is_empty() && !rule.meaning.is_empty()));
        assert!(ids.contains("net-ipv6-jumbo-header"));
    }
}
