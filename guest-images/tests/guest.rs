//! A real guest: a kernel and initramfs from the store, booted by QEMU, and the agent in it driven over its port.
//!
//! These tests fetch packages and need `qemu-system-x86_64`, so they run only when asked for:
//! `cargo test -p guest-images --test guest -- --ignored`. `NICVISOR_TEST_KERNEL` names another kernel.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command as Process, Stdio},
    time::{Duration, Instant},
};

use agent_protocol::{
    Channel, Command, Event, Exit, Failure, JobId, ModuleRequest, PORT_NAME, Power, RequestId, Session,
    TerminalSize,
};
use guest_images::{ExtraFile, InitramfsOptions, Store, StoreOptions};

struct Guest {
    qemu: Child,
    stream: UnixStream,
    session: Session,
    kernel: String,
    _directory: tempfile::TempDir,
}

#[derive(Default)]
struct Outcome {
    exit: Option<Exit>,
    output: BTreeMap<bool, Vec<u8>>,
}

impl Outcome {
    fn stdout(&self) -> String {
        self.text(true)
    }

    fn stderr(&self) -> String {
        self.text(false)
    }

    fn text(&self, stdout: bool) -> String {
        String::from_utf8_lossy(self.output.get(&stdout).map_or(&[], Vec::as_slice)).into_owned()
    }

    fn status(&self) -> i32 {
        self.exit.expect("the command has ended").status()
    }
}

impl Guest {
    fn boot(options: &InitramfsOptions) -> Guest {
        let store = Store::open(StoreOptions::default()).unwrap();
        let name = std::env::var("NICVISOR_TEST_KERNEL").unwrap_or_else(|_| "debian:6.12".to_owned());
        let kernel = store.kernel(&name.parse().unwrap()).unwrap();
        let initramfs = store.initramfs(&kernel, options).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent");
        let archive = directory.path().join("initramfs");
        let layers: Vec<Vec<u8>> =
            initramfs.layers.iter().map(|layer| std::fs::read(layer).unwrap()).collect();
        std::fs::write(&archive, layers.concat()).unwrap();
        let started = Instant::now();
        let qemu = Process::new("qemu-system-x86_64")
            .args([
                "-accel",
                "tcg",
                "-cpu",
                "qemu64",
                "-m",
                "1G",
                "-smp",
                "2",
                "-nographic",
                "-no-reboot",
                "-nic",
                "none",
            ])
            .arg("-kernel")
            .arg(&kernel.vmlinuz)
            .arg("-initrd")
            .arg(&archive)
            .args(["-append", "console=ttyS0 panic=-1 mitigations=off quiet", "-device", "virtio-serial-pci"])
            .args(["-chardev", &format!("socket,path={},server=on,wait=off,id=a", socket.display())])
            .args(["-device", &format!("virtserialport,chardev=a,name={PORT_NAME}")])
            .args([
                "-serial",
                &format!("file:{}", directory.path().join("console").display()),
                "-monitor",
                "none",
            ])
            .stdin(Stdio::null())
            .spawn()
            .expect("qemu-system-x86_64 is installed");
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if started.elapsed() < TIMEOUT => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("QEMU does not listen: {error}"),
            }
        };
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut guest =
            Guest { qemu, stream, session: Session::new(), kernel: String::new(), _directory: directory };
        let Event::Ready { kernel } =
            guest.wait_for("the agent", |event| matches!(event, Event::Ready { .. }))
        else {
            unreachable!("that is what was waited for");
        };
        println!("{kernel}: agent ready after {:.2} s", started.elapsed().as_secs_f64());
        guest.kernel = kernel;
        guest
    }

    fn pump(&mut self) {
        let outgoing = self.session.outgoing();
        if !outgoing.is_empty() {
            let length = outgoing.len();
            self.stream.write_all(outgoing).unwrap();
            self.session.sent(length);
        }
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(length) => self.session.receive(&buffer[..length]).unwrap(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Events before the one waited for are dropped.
    fn wait_for(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            while let Some(event) = self.session.next_event() {
                if wanted(&event) {
                    return event;
                }
            }
            self.pump();
        }
        panic!("waited in vain for {what}");
    }

    fn done(&mut self, request: RequestId) -> Result<(), Failure> {
        let event = self.wait_for(
            "an answer",
            |event| matches!(event, Event::Done { request: done, .. } if *done == request),
        );
        let Event::Done { result, .. } = event else { unreachable!("that is what was waited for") };
        result
    }

    fn finish(&mut self, jobs: &[JobId]) -> Vec<Outcome> {
        let mut outcomes: BTreeMap<JobId, Outcome> =
            jobs.iter().map(|job| (*job, Outcome::default())).collect();
        let deadline = Instant::now() + TIMEOUT;
        while outcomes.values().any(|outcome| outcome.exit.is_none()) {
            assert!(Instant::now() < deadline, "a command does not end");
            self.pump();
            while let Some(event) = self.session.next_event() {
                match event {
                    Event::Output { job, channel, data } => {
                        let outcome = outcomes.get_mut(&job).unwrap();
                        outcome.output.entry(channel == Channel::Stdout).or_default().extend(data);
                    }
                    Event::Exited { job, exit } => outcomes.get_mut(&job).unwrap().exit = Some(exit),
                    Event::SpawnFailed { failure, .. } => panic!("{failure}"),
                    _ => {}
                }
            }
        }
        outcomes.into_values().collect()
    }

    fn run(&mut self, command: Command) -> Outcome {
        let job = self.session.spawn(command);
        self.finish(&[job]).remove(0)
    }

    fn shell(&mut self, script: &str) -> Outcome {
        self.run(shell(script))
    }

    fn end(mut self) {
        self.session.power(Power::Off);
        self.wait_for("the agent's farewell", |event| *event == Event::Bye);
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.qemu.try_wait().unwrap() {
                assert!(status.success());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the guest does not power off");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn shell(script: &str) -> Command {
    Command { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..Command::default() }
}

fn module(name: &str, parameters: &str) -> ModuleRequest {
    ModuleRequest { name: name.to_owned(), parameters: parameters.to_owned() }
}

#[test]
#[ignore = "boots a kernel in QEMU, and fetches it first"]
fn commands_files_and_modules() {
    let mut guest = Guest::boot(&InitramfsOptions::default());

    let links =
        guest.run(Command { argv: ["ip", "-d", "link"].map(str::to_owned).to_vec(), ..Command::default() });
    assert_eq!(links.status(), 0, "{}", links.stderr());
    assert!(links.stdout().contains("LOOPBACK,UP"), "{}", links.stdout());

    let both = guest.shell("echo out; echo err >&2; exit 7");
    assert_eq!((both.stdout().as_str(), both.stderr().as_str(), both.status()), ("out\n", "err\n", 7));

    let several =
        [shell("sleep 0.2; echo first"), shell("echo second")].map(|command| guest.session.spawn(command));
    let outcomes = guest.finish(&several);
    assert_eq!((outcomes[0].stdout().as_str(), outcomes[1].stdout().as_str()), ("first\n", "second\n"));

    let sleeper = guest.session.spawn(shell("sleep 1000"));
    guest.session.signal(sleeper, 15);
    assert_eq!(guest.finish(&[sleeper])[0].exit, Some(Exit::Signal(15)));

    let missing =
        guest.session.spawn(Command { argv: vec!["no-such-program".to_owned()], ..Command::default() });
    let event = guest.wait_for("a failure", |event| matches!(event, Event::SpawnFailed { .. }));
    assert!(
        matches!(event, Event::SpawnFailed { job, failure } if job == missing && failure.errno == Some(2))
    );

    let environment = Command {
        env: vec![("COLOUR".to_owned(), "blue".to_owned())],
        cwd: Some("/tmp".to_owned()),
        ..shell("echo $COLOUR $PWD $HOME; id -un; hostname")
    };
    assert_eq!(guest.run(environment).stdout(), "blue /tmp /root\nroot\nnicvisor\n");

    // More than all windows and buffers together, both ways.
    let data: Vec<u8> =
        (0..1_500_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let request = guest.session.put_file("/root/made/file", 0o600, data.clone());
    assert_eq!(guest.done(request), Ok(()));
    let cat = guest.session.spawn(Command { stdin: true, ..shell("cat; stat -c %a:%s /root/made/file >&2") });
    guest.session.write_stdin(cat, &data);
    guest.session.close_stdin(cat);
    let outcome = guest.finish(&[cat]).remove(0);
    assert_eq!(outcome.stderr(), "600:1500000\n");
    assert!(outcome.output[&true] == data);
    let request = guest.session.get_file("/root/made/file");
    let event = guest.wait_for("the file", |event| matches!(event, Event::File { .. } | Event::Done { .. }));
    assert!(event == Event::File { request, contents: data });
    let request = guest.session.get_file("/nonexistent");
    assert_eq!(guest.done(request).unwrap_err().errno, Some(2));

    for name in ["gve", "mana", "veth", "vxlan", "hv_netvsc", "pci-hyperv", "tls", "virtio_net"] {
        let request = guest.session.load_modules(vec![module(name, "")]);
        let result = guest.done(request);
        // The Hyper-V drivers rightly refuse to load without their hypervisor.
        assert!(
            result.is_ok() || result.as_ref().is_err_and(|failure| failure.errno == Some(19)),
            "{name}: {result:?}"
        );
    }
    let request = guest.session.load_modules(vec![module("dummy", "numdummies=3")]);
    assert_eq!(guest.done(request), Ok(()));
    let loaded =
        guest.shell("lsmod | grep -cE '^(gve|veth|vxlan|mana) '; ls -d /sys/class/net/dummy* | wc -l");
    assert_eq!(loaded.stdout(), "4\n3\n", "{}", loaded.stderr());
    let request = guest.session.load_modules(vec![module("nonesuch", "")]);
    assert!(guest.done(request).unwrap_err().message.contains("nonesuch"));

    // The kernel asks modprobe for what a command needs, by alias.
    let asked = guest.shell("ip link add br7 type bridge && modinfo -F name geneve && modprobe -R rtnl-link-ifb && ethtool --version");
    assert_eq!(asked.status(), 0, "{}{}", asked.stdout(), asked.stderr());
    assert!(asked.stdout().starts_with("geneve\nifb\nethtool version"), "{}", asked.stdout());

    let made = guest.shell("ip netns add blue && ip link add in0 type veth peer name out0 netns blue");
    assert_eq!(made.status(), 0, "{}", made.stderr());
    let inside =
        Command { netns: Some("blue".to_owned()), ..shell("ls /sys/class/net; ip -br link show out0") };
    let inside = guest.run(inside);
    assert!(inside.stdout().starts_with("lo\nout0\nout0@"), "{}{}", inside.stdout(), inside.stderr());

    let traffic = guest.shell("iperf3 -s -1 -D && sleep 0.3 && iperf3 -c ::1 -n 1M");
    assert_eq!(traffic.status(), 0, "{}{}", traffic.stdout(), traffic.stderr());
    guest.end();
}

#[test]
#[ignore = "boots a kernel in QEMU, and fetches it first"]
fn a_terminal_behaves_like_one() {
    let mut guest = Guest::boot(&InitramfsOptions::default());
    let terminal = Some(TerminalSize { rows: 33, columns: 99 });
    let shell = guest.session.spawn(Command { argv: vec!["sh".to_owned()], terminal, ..Command::default() });
    guest.session.write_stdin(shell, b"stty size; tty; sleep 100\n");
    guest.wait_for("the shell", |event| {
        matches!(event, Event::Output { data, .. } if String::from_utf8_lossy(data).contains("/dev/pts/"))
    });
    guest.session.write_stdin(shell, b"\x03");
    guest.session.write_stdin(shell, b"echo still $((40 + 2)); exit 3\n");
    let outcome = guest.finish(&[shell]).remove(0);
    assert!(outcome.stdout().contains("still 42"), "{}", outcome.stdout());
    assert_eq!(outcome.status(), 3);
    guest.end();
}

#[test]
#[ignore = "boots a kernel in QEMU, and fetches it first"]
fn a_file_and_a_replaced_module_come_with_the_image() {
    let store = Store::open(StoreOptions::default()).unwrap();
    let name = std::env::var("NICVISOR_TEST_KERNEL").unwrap_or_else(|_| "debian:6.12".to_owned());
    let kernel = store.kernel(&name.parse().unwrap()).unwrap();
    let stock = kernel.modules.as_ref().unwrap().join("kernel/drivers/net/ethernet/google/gve");
    let stock = std::fs::read_dir(stock).unwrap().flatten().next().unwrap().path();
    let options = InitramfsOptions {
        module_files: vec![stock],
        files: vec![ExtraFile { source: PathBuf::from("Cargo.toml"), target: "/opt/manifest".to_owned() }],
        ..InitramfsOptions::default()
    };
    let mut guest = Guest::boot(&options);
    let request = guest.session.load_modules(vec![module("gve", "")]);
    assert_eq!(guest.done(request), Ok(()));
    assert_eq!(guest.shell("grep -c guest-images /opt/manifest").stdout(), "1\n");
    guest.end();
}

const TIMEOUT: Duration = Duration::from_secs(180);
