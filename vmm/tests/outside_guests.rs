//! Guests on links that lead out of the program: to another nicvisor, to QEMU, to the host's own network.

mod echo;
mod programs;
mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicvisor::accel::{Patience, RunControl, RunEvent};
use nicvisor::machine::{Machine, MachineConfig};
use nicvisor::nic::NicSpec;
use nicvisor::outside;
use nicvisor_core::{PciDevice, Time};
use nicvisor_net::network::{LinkConfig, Network, SharedMedium};
use programs::program;
use support::{Backend, accelerator, backends, run};

/// A machine with one device, on a link that leads to the socket at `path`.
fn wired(path: &Path, name: &str, device: Box<dyn PciDevice>) -> Machine {
    let config = MachineConfig { memory: 64 << 20, cpus: 1, ..MachineConfig::default() };
    let mut machine = Machine::new(config, SharedMedium::new(Network::new())).unwrap();
    let address = format!("stream:{}", path.display());
    let link = machine.network().add_link(LinkConfig::named(address.clone()));
    machine.add_outside(link, &address, outside::open(&address).unwrap().unwrap());
    machine.add_device(name, device, link).unwrap();
    machine
}

/// A driver of gve's on each backend exchanges a frame with a machine on the software CPU.
#[test]
fn a_frame_goes_to_another_machine_and_back() {
    let directory = tempfile::tempdir().unwrap();
    for backend in backends() {
        let path = directory.path().join(format!("{backend:?}"));
        let done = AtomicBool::new(false);
        let spin = program("spin");
        let mut other = wired(&path, "echo", Box::new(echo::Echo));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let entry = other.boot(&spin, "on", None).unwrap();
                let mut accelerator = accelerator(Backend::Soft, &mut other);
                accelerator.start(&entry).unwrap();
                let patient = Duration::from_secs(3600);
                let control = RunControl {
                    interrupted: &done,
                    host_deadline: None,
                    until: None,
                    stop_at: None,
                    since: Time::ZERO,
                    report_idle: false,
                    patience: Patience { interrupts_blocked: patient, no_progress: patient },
                };
                accelerator.run(&mut other, &control)
            });
            let nic: NicSpec = "gve".parse().unwrap();
            let mut machine = wired(&path, "gve0", nic.build().unwrap());
            let outcome = run(backend, &mut machine, &program("gve"), "", None, Patience::default());
            done.store(true, Ordering::Relaxed);
            outcome
        });
        assert!(outcome.serial.ends_with("the same as sent\n"), "on {backend:?}: {}", outcome.serial);
        assert_eq!(outcome.event, RunEvent::DebugExit(1), "on {backend:?}");
    }
}

#[test]
#[ignore = "boots two guests at once"]
fn two_programs_wire_their_guests_together() {
    let directory = tempfile::tempdir().unwrap();
    let link = format!("stream:{}", directory.path().join("line").display());
    // The first one stays until the other has been seen.
    let first = "ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up
        for i in $(seq 100); do ping -c 1 -W 1 192.0.2.2 && exit 0; done; exit 1";
    let second = "ip address add 192.0.2.2/24 dev eth0; ip link set eth0 up
        for i in $(seq 100); do ping -c 3 -W 1 192.0.2.1 && sleep 2 && exit 0; done; exit 1";
    let nics = [format!("gve,link={link}"), format!("mana,link={link}")];
    for guest in [Guest::start(&nics[0], first), Guest::start(&nics[1], second)] {
        let (status, output) = guest.end(Duration::from_secs(300));
        assert_eq!(status, Some(0), "{output}");
        assert!(output.contains("bytes from 192.0.2."), "{output}");
    }
}

/// QEMU's own network behind a stream: its gateway answers pings.
#[test]
#[ignore = "boots a guest, and needs qemu-system-x86"]
fn a_guest_reaches_the_gateway_of_qemus_network() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("line");
    let script = "ip address add 10.0.2.15/24 dev eth0; ip link set eth0 up
        for i in $(seq 60); do ping -c 3 -W 1 10.0.2.2 && exit 0; done; exit 1";
    let guest = Guest::start(&format!("gve,link=stream:{}", path.display()), script);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !path.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-machine", "none", "-nodefaults", "-display", "none", "-netdev", "user,id=u,net=10.0.2.0/24"])
        .arg("-netdev")
        .arg(format!("stream,id=s,server=off,addr.type=unix,addr.path={}", path.display()))
        .args(["-netdev", "hubport,id=hu,hubid=0,netdev=u", "-netdev", "hubport,id=hs,hubid=0,netdev=s"])
        .stdin(Stdio::null())
        .spawn()
        .expect("qemu-system-x86_64: install qemu-system-x86");
    let (status, output) = guest.end(Duration::from_secs(300));
    qemu.kill().unwrap();
    qemu.wait().unwrap();
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("bytes from 10."), "{output}");
}

#[test]
#[ignore = "boots a guest, and needs root to make a tap interface"]
fn the_host_reaches_a_guest_by_its_tap_interface() {
    let name = format!("nv{}", std::process::id());
    let script = "ip address add 10.203.113.2/30 dev eth0; ip link set eth0 up
        for i in $(seq 100); do ping -c 3 -W 1 10.203.113.1 && sleep 5 && exit 0; done; exit 1";
    let guest = Guest::start(&format!("gve,link=tap:{name}"), script);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !ip(&["link", "set", &name, "up"]) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(ip(&["address", "add", "10.203.113.1/30", "dev", &name]), "{}", guest.end(Duration::ZERO).1);
    // Nobody listens there, and the guest says so.
    let address = SocketAddr::from(([10, 203, 113, 2], 9));
    let mut reached = false;
    while !reached && Instant::now() < deadline {
        let error = TcpStream::connect_timeout(&address, Duration::from_secs(1)).unwrap_err();
        reached = error.kind() == std::io::ErrorKind::ConnectionRefused;
    }
    let (status, output) = guest.end(Duration::from_secs(120));
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("bytes from 10."), "{output}");
    assert!(reached, "the host did not reach the guest: {output}");
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output().expect("ip: install iproute2");
    output.status.success()
}

/// A running nicvisor with a stock kernel.
struct Guest {
    child: Child,
    output: JoinHandle<String>,
}

impl Guest {
    /// Boots a guest with `nic` and runs `script` in it.
    fn start(nic: &str, script: &str) -> Guest {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nicvisor"))
            .args(["run", "--accel", "soft", "--cpus", "1", "--nic", nic, "--", "sh", "-c"])
            .arg(format!("exec 2>&1; {script}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let output = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stdout.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Guest { child, output }
    }

    /// The exit status, if the program ends in time, and what the script has said.
    fn end(mut self, longest: Duration) -> (Option<i32>, String) {
        let deadline = Instant::now() + longest;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let status = self.child.wait().unwrap().code();
        (status, self.output.join().unwrap())
    }
}
