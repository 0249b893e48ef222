//! Debian 6.12 from the first instruction to the agent's greeting: here and on QEMU's TCG, in turns, in one run.
//!
//! `cargo bench -p nicvisor --bench boot`. Prints the times, their ratio, guest instructions a second, and what
//! the process needs in memory beside the guest RAM that was touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest_images::{InitramfsOptions, Store, StoreOptions};
use nicvisor::accel::Choice;
use nicvisor::boot::Kernel;
use nicvisor::guest::{COMMAND_LINE, Guest, Plan, boot};
use nicvisor::machine::MachineConfig;
use nicvisor_memory::{DIRTY, PAGE_SIZE, PageTracker};
use nicvisor_net::network::{Network, SharedMedium};
use vm_memory::GuestMemoryBackend;

fn main() {
    let store = Store::open(StoreOptions::default()).expect("the image cache");
    let kernel = store.kernel(&"debian:6.12".parse().expect("a name")).expect("the kernel");
    let initramfs = store.initramfs(&kernel, &InitramfsOptions::default()).expect("the initramfs");
    let [initramfs] = &initramfs.layers[..] else { panic!("what all guests have is one archive") };
    let directory = tempfile::tempdir().expect("a directory");
    // Both start from the unpacked kernel: QEMU would have to unpack a bzImage in the guest.
    let vmlinux = directory.path().join("vmlinux");
    let image = Kernel::read(&kernel.vmlinuz).expect("the kernel");
    std::fs::write(&vmlinux, image.elf()).expect("room for the kernel");
    drop(image);
    println!("{} to agent ready, {CPUS} CPUs, {} MiB, {ROUNDS} rounds", kernel.release, MEMORY >> 20);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (time, guest) = boot_here(&vmlinux, initramfs);
        ours.push(time);
        if round == 0 {
            describe(&guest, time);
        }
        drop(guest);
        theirs.extend(boot_on_qemu(&vmlinux, initramfs, directory.path()));
    }
    println!("nicvisor, software CPU: median {:.2} s {ours:.2?}", median(&mut ours));
    if theirs.is_empty() {
        println!("QEMU TCG: not measured (install qemu-system-x86)");
        return;
    }
    println!("QEMU TCG:               median {:.2} s {theirs:.2?}", median(&mut theirs));
    println!("ratio: {:.1}", median(&mut ours) / median(&mut theirs));
}

fn boot_here(vmlinux: &Path, initramfs: &Path) -> (f64, Guest) {
    let start = Instant::now();
    let mut guest = boot(Plan {
        kernel: vmlinux.to_owned(),
        system_map: None,
        initramfs: vec![initramfs.to_owned()],
        append: String::new(),
        machine: MachineConfig { memory: MEMORY, cpus: CPUS, ..MachineConfig::default() },
        accel: Choice::SOFT,
        nics: Vec::new(),
        nics_before: Vec::new(),
        medium: SharedMedium::new(Network::new()),
        verbose: false,
        deadline: None,
        interrupted: Arc::new(AtomicBool::new(false)),
    })
    .expect("a guest");
    guest.wait_until_ready().expect("a guest that boots");
    (start.elapsed().as_secs_f64(), guest)
}

fn describe(guest: &Guest, seconds: f64) {
    let instructions = guest.instructions().unwrap_or(0) as f64;
    let pages: usize = guest
        .machine()
        .ram()
        .iter()
        .map(|region| {
            let flags = PageTracker::of(region);
            (0..flags.pages()).filter(|page| flags.get(*page) & DIRTY != 0).count()
        })
        .sum();
    let touched = (pages * PAGE_SIZE) >> 20;
    println!(
        "{:.0} million instructions, {:.0} million a second; {touched} MiB of guest RAM written, process at its \
         largest {} MiB",
        instructions / 1e6,
        instructions / seconds / 1e6,
        peak_memory() >> 20
    );
}

/// The agent greets the host on its port as soon as it runs: a file that is not empty any more.
fn boot_on_qemu(vmlinux: &Path, initramfs: &Path, directory: &Path) -> Option<f64> {
    let greeting: PathBuf = directory.join("greeting");
    let _ = std::fs::remove_file(&greeting);
    let start = Instant::now();
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", "qemu64", "-nographic", "-no-reboot", "-nic", "none"])
        .args(["-m", &format!("{}M", MEMORY >> 20), "-smp", &CPUS.to_string()])
        .arg("-kernel")
        .arg(vmlinux)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &format!("{COMMAND_LINE} quiet")])
        .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=nicvisor.agent"])
        .args(["-chardev", &format!("file,id=agent,path={}", greeting.display())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .ok()?;
    let ready = loop {
        if std::fs::metadata(&greeting).is_ok_and(|file| file.len() > 0) {
            break Some(start.elapsed().as_secs_f64());
        }
        if start.elapsed() > GIVE_UP || qemu.try_wait().ok()?.is_some() {
            break None;
        }
        sleep(Duration::from_millis(5));
    };
    let _ = qemu.kill();
    let _ = qemu.wait();
    ready
}

fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0) << 10
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

const CPUS: usize = 2;
const MEMORY: u64 = 1 << 30;
const ROUNDS: usize = 3;
const GIVE_UP: Duration = Duration::from_secs(120);
