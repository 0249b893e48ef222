//! Namespaces: commands that set them up before the first step.

use std::collections::BTreeMap;
use std::fmt::Write;

use nicvisor_core::Time;
use toml::Spanned;

use super::Stop;
use super::world::{STEP_TIMEOUT, World};
use crate::judge::excerpt;
use crate::lab::GuestCommand;
use crate::model::{Device, Namespace, Settings};
use crate::outcome::Check;

/// Sets up all namespaces, one after the other.
pub(super) fn namespaces(world: &mut World<'_>) -> Result<(), Stop> {
    let scenario = world.scenario;
    for (name, namespace) in &scenario.namespaces {
        let title = format!("set up namespace {name}");
        let began = world.lab.now();
        world.begin(&title);
        let guest = scenario.namespace_guest(name);
        let script = set_up(name, namespace.get_ref());
        let job = world.spawn(guest, &GuestCommand::shell(&script, None));
        let deadline = began + STEP_TIMEOUT;
        while !world.job(job).is_some_and(|state| state.ended) {
            if world.lab.now() >= deadline {
                return Err(Stop::Failed(Check::fail(title, "it takes for ever")));
            }
            world.advance(deadline)?;
        }
        finish(world, job, &title, began)?;
    }
    Ok(())
}

fn finish(world: &mut World<'_>, job: crate::lab::Job, title: &str, began: Time) -> Result<(), Stop> {
    let result = world.job(job).map(|state| state.result.clone()).unwrap_or_default();
    world.forget(job);
    if result.status == 0 {
        world.end(title, began, vec![Check::pass(title)]);
        return Ok(());
    }
    let text = String::from_utf8_lossy(&result.stderr).into_owned();
    Err(Stop::Failed(Check::fail(title, format!("exit status {}: {}", result.status, excerpt(&text)))))
}

/// The commands that make a namespace with its interface and devices.
fn set_up(name: &str, namespace: &Namespace) -> String {
    let interface = namespace.interface.as_ref().map_or("", |interface| interface.get_ref());
    let mut script = format!("set -e\nip netns add {name}\nip link set {interface} netns {name}\n");
    let mut inside = |line: String| {
        let _ = writeln!(script, "ip -n {name} {line}");
    };
    inside("link set lo up".into());
    configure(&mut inside, interface, namespace.settings());
    for device in namespace.devices.iter().map(Spanned::get_ref) {
        inside(add_device(interface, device));
        configure(&mut inside, device.name.get_ref(), device.settings());
    }
    features(&mut script, name, interface, &namespace.features);
    for device in namespace.devices.iter().map(Spanned::get_ref) {
        features(&mut script, name, device.name.get_ref(), &device.features);
    }
    script
}

fn configure(inside: &mut dyn FnMut(String), interface: &str, settings: Settings<'_>) {
    for (option, value) in settings.sizes {
        if let Some(value) = value {
            inside(format!("link set {interface} {option} {value}"));
        }
    }
    for address in settings.addresses {
        let address = address.get_ref();
        // Duplicate address detection would keep an IPv6 address unusable for its first second.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        inside(format!("address add {address} dev {interface}{nodad}"));
    }
    inside(format!("link set {interface} up"));
}

fn add_device(interface: &str, device: &Device) -> String {
    let name = device.name.get_ref();
    let mut line = format!("link add {name}");
    // A geneve device finds its way by routes, and a vxlan device with its own address does, too.
    if !device.kind.is_tunnel() {
        let _ = write!(line, " link {interface}");
    }
    let _ = write!(line, " type {} id {}", device.kind.name(), device.id);
    for (word, address) in [("remote", &device.remote), ("local", &device.local)] {
        if let Some(address) = address {
            let _ = write!(line, " {word} {}", address.get_ref());
        }
    }
    if device.kind.is_tunnel() {
        let port = device.port.unwrap_or(match device.kind {
            crate::model::DeviceKind::Vxlan => VXLAN_PORT,
            _ => GENEVE_PORT,
        });
        let _ = write!(line, " dstport {port}");
    }
    if !device.options.is_empty() {
        let _ = write!(line, " {}", device.options.trim());
    }
    line
}

fn features(script: &mut String, namespace: &str, interface: &str, features: &BTreeMap<String, bool>) {
    for (feature, on) in features {
        let state = if *on { "on" } else { "off" };
        let _ = writeln!(script, "ip netns exec {namespace} ethtool -K {interface} {feature} {state}");
    }
}

/// Assigned by IANA (RFC 7348, RFC 8926).
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_stand_on_their_interface() {
        let namespace: Namespace = toml::from_str(
            "interface = 'eth0'
            addresses = ['2001:db8::1/64']
            mtu = 8000
            features = { tx-udp_tnl-segmentation = false }
            device = [
                { name = 'vx0', kind = 'vxlan', id = 7, remote = '2001:db8::2', local = '2001:db8::1',
                  options = 'udp6zerocsumtx', addresses = ['10.0.0.1/24'], gso_max_size = 185000 },
                { name = 'v7', kind = 'vlan', id = 7 },
            ]",
        )
        .unwrap();
        let expected = "\
set -e
ip netns add left
ip link set eth0 netns left
ip -n left link set lo up
ip -n left link set eth0 mtu 8000
ip -n left address add 2001:db8::1/64 dev eth0 nodad
ip -n left link set eth0 up
ip -n left link add vx0 type vxlan id 7 remote 2001:db8::2 local 2001:db8::1 dstport 4789 udp6zerocsumtx
ip -n left link set vx0 gso_max_size 185000
ip -n left address add 10.0.0.1/24 dev vx0
ip -n left link set vx0 up
ip -n left link add v7 link eth0 type vlan id 7
ip -n left link set v7 up
ip netns exec left ethtool -K eth0 tx-udp_tnl-segmentation off
";
        assert_eq!(set_up("left", &namespace), expected);
    }
}
