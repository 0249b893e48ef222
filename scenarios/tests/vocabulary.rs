//! What a scenario may name of the machine that it runs on.

use std::collections::BTreeMap;
use std::path::Path;

use nicvisor_core::fault::{EventPoint, FaultPoints, Field, OverridePoint};
use scenarios::load::parse;
use scenarios::{KnownDevice, LoadError, Vocabulary};

fn checked(steps: &str) -> Result<(), String> {
    let text = format!("description = 'x'\n[[nic]]\nkind = 'gve'\n{steps}");
    let scenario = parse(Path::new("s.toml"), &text, &[]).unwrap().remove(0);
    let event = EventPoint { name: "reset".into(), meaning: "".into(), arguments: Vec::new() };
    let value = OverridePoint::new(Field::new("status", 32));
    let faults = FaultPoints { events: vec![event], overrides: vec![value], ..FaultPoints::default() };
    let device = KnownDevice { counters: Vec::new(), faults };
    let devices = BTreeMap::from([("gve0".to_owned(), device)]);
    match (Vocabulary { devices, ..Vocabulary::default() }).check(&scenario) {
        Ok(()) => Ok(()),
        Err(LoadError::Mistake(mistake)) => Err(mistake.one_line().to_string()),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn a_fault_is_lifted_by_the_label_that_another_step_gave_it() {
    let fault =
        "[[step]]\nfault = { device = 'gve0', override = { name = 'status', value = 1, label = 'a' } }\n";
    let lift =
        |label: &str| format!("[[step]]\nfault = {{ device = 'gve0', lift = {{ label = '{label}' }} }}\n");
    assert_eq!(checked(&format!("{fault}{}", lift("a"))), Ok(()));
    let nested = "[[step]]\nparallel = [{ sequence = [{ fault = { device = 'gve0', override = { name = 'status', \
        value = 1, label = 'b' } } }] }]\n";
    assert_eq!(checked(&format!("{nested}{}", lift("b"))), Ok(()));
    let wrong = checked(&format!("{fault}{}", lift("c"))).unwrap_err();
    assert!(wrong.starts_with("s.toml:7:9: there is no fault with the label \"c\""), "{wrong}");
}
