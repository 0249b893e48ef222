//! NICs, links, namespaces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use toml::Spanned;

use super::{DEFAULT_LINK, LONGEST_INTERFACE, LONGEST_NAME, check_guest, check_word, unknown};
use crate::model::{Device, DeviceKind, Namespace, NicTable, Scenario};
use crate::tree::Wrong;

pub(super) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    for nic in &scenario.nics {
        if !nic.get_ref().get("kind").is_some_and(serde_json::Value::is_string) {
            return Err(Wrong::new(nic.span(), "a NIC needs a kind", "add kind = \"gve\""));
        }
        nic_guest(scenario, nic)?;
    }
    check_links(scenario)?;
    let mut taken: Vec<(usize, &str)> = Vec::new();
    for (name, namespace) in &scenario.namespaces {
        check_word(namespace.span(), "a namespace", name, LONGEST_NAME)?;
        check_guest(scenario, namespace.get_ref().guest.as_ref())?;
        let guest = scenario.namespace_guest(name);
        let interface = check_namespace(scenario, guest, namespace)?;
        if taken.contains(&(guest, interface.get_ref())) {
            let message = format!("{} is in another namespace already", interface.get_ref());
            return Err(Wrong::new(interface.span(), message, "an interface is in one namespace"));
        }
        taken.push((guest, interface.get_ref()));
    }
    Ok(())
}

/// What is said of a link counts for somebody, and can be.
fn check_links(scenario: &Scenario) -> Result<(), Wrong> {
    let of_nic = |nic: &'_ Spanned<NicTable>| -> String {
        nic.get_ref().get("link").and_then(|link| link.as_str()).unwrap_or(DEFAULT_LINK).to_owned()
    };
    let used: BTreeSet<String> = scenario.nics.iter().map(of_nic).collect();
    for (name, link) in &scenario.links {
        if !used.contains(name) {
            let help = match used.iter().next() {
                Some(other) => {
                    format!("the NICs are on {other}: use that name, or give one link = \"{name}\"")
                }
                None => "add a [[nic]]".into(),
            };
            return Err(Wrong::new(link.span(), format!("no NIC is on the link {name}"), help));
        }
        if let Some(mtu) = link.get_ref().mtu.filter(|mtu| *mtu < LEAST_MTU) {
            let message = format!("a link cannot have an MTU of {mtu}");
            return Err(Wrong::new(link.span(), message, format!("use at least {LEAST_MTU}")));
        }
    }
    Ok(())
}

/// The guest that a NIC is in, counted from 0.
fn nic_guest(scenario: &Scenario, nic: &Spanned<NicTable>) -> Result<usize, Wrong> {
    let Some(name) = nic.get_ref().get("guest") else { return Ok(0) };
    let known: Vec<String> = (0..scenario.guest_count()).map(|index| scenario.guest_name(index)).collect();
    name.as_str().and_then(|name| scenario.guest_index(Some(name))).ok_or_else(|| {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        unknown(nic.span(), "guest", &name, known.iter().map(String::as_str))
    })
}

fn check_namespace<'a>(
    scenario: &Scenario,
    guest: usize,
    spanned: &'a Spanned<Namespace>,
) -> Result<&'a Spanned<String>, Wrong> {
    let namespace = spanned.get_ref();
    let Some(interface) = &namespace.interface else {
        let help = "add interface = \"eth0\"";
        return Err(Wrong::new(spanned.span(), "a namespace needs an interface", help));
    };
    check_word(interface.span(), "an interface", interface.get_ref(), LONGEST_INTERFACE)?;
    let mut nics = 0;
    for nic in &scenario.nics {
        nics += usize::from(nic_guest(scenario, nic)? == guest);
    }
    let number = interface.get_ref().strip_prefix("eth").and_then(|number| number.parse::<usize>().ok());
    // A device may have more ports than one, but none has fewer.
    if nics == 0 && number.is_some() {
        let message = format!("there is no {}: the guest has no NIC", interface.get_ref());
        return Err(Wrong::new(interface.span(), message, "add a [[nic]]"));
    }
    namespace.addresses.iter().try_for_each(check_prefix)?;
    for device in &namespace.devices {
        check_device(device)?;
    }
    Ok(interface)
}

fn check_device(spanned: &Spanned<Device>) -> Result<(), Wrong> {
    let device = spanned.get_ref();
    let kind = device.kind.name();
    check_word(device.name.span(), "an interface", device.name.get_ref(), LONGEST_INTERFACE)?;
    device.addresses.iter().try_for_each(check_prefix)?;
    let most = if device.kind.is_tunnel() { (1 << 24) - 1 } else { 4094 };
    if device.id > most {
        let message = format!("{} is no id for a {kind}", device.id);
        return Err(Wrong::new(spanned.span(), message, format!("use at most {most}")));
    }
    match (&device.remote, device.kind.is_tunnel()) {
        (None, true) => {
            let message = format!("a {kind} device needs its other end");
            return Err(Wrong::new(spanned.span(), message, "add remote = \"192.0.2.2\""));
        }
        (Some(remote), false) => {
            return Err(Wrong::new(
                remote.span(),
                format!("a {kind} device has no other end"),
                "leave it out",
            ));
        }
        _ => {}
    }
    if let (Some(local), false) = (&device.local, device.kind == DeviceKind::Vxlan) {
        return Err(Wrong::new(local.span(), format!("a {kind} device has no own end"), "leave it out"));
    }
    [&device.remote, &device.local].into_iter().flatten().try_for_each(check_address)
}

pub(super) fn check_address(address: &Spanned<String>) -> Result<(), Wrong> {
    match address.get_ref().parse::<IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => {
            let message = format!("{:?} is not an IP address", address.get_ref());
            Err(Wrong::new(address.span(), message, "write it like 192.0.2.1 or 2001:db8::1"))
        }
    }
}

fn check_prefix(address: &Spanned<String>) -> Result<(), Wrong> {
    let good = address.get_ref().split_once('/').is_some_and(|(address, length)| {
        let most = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= most)
    });
    if good {
        return Ok(());
    }
    let message = format!("{:?} is not an address with its prefix length", address.get_ref());
    Err(Wrong::new(address.span(), message, "write it like 192.0.2.1/24 or 2001:db8::1/64"))
}

/// RFC 791.
const LEAST_MTU: u32 = 68;
