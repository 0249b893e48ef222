//! Links that lead out speak QEMU's formats: a QEMU without a machine passes frames from its stream to its datagram
//! socket and back.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nicvisor::outside::{Wire, open};

#[test]
fn frames_pass_through_qemu_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut stream = open(&format!("stream:{}", path("stream"))).unwrap().unwrap();
    let mut datagram = open(&format!("dgram:{}:{}", path("ours"), path("theirs"))).unwrap().unwrap();
    let Some(mut qemu) = start_qemu(&path("stream"), &path("theirs"), &path("ours")) else {
        eprintln!("not tried: install qemu-system-x86");
        return;
    };
    let frame = |fill: u8| [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[fill; 986]].concat();
    let there = pass(&mut *stream, &mut *datagram, &frame(1));
    let back = pass(&mut *datagram, &mut *stream, &frame(2));
    qemu.kill().unwrap();
    qemu.wait().unwrap();
    assert_eq!((there, back), (Some(frame(1)), Some(frame(2))));
}

/// Sends `frame` until it arrives: QEMU takes its time to start.
fn pass(from: &mut dyn Wire, to: &mut dyn Wire, frame: &[u8]) -> Option<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let _ = from.send(frame);
        for _ in 0..10 {
            if let Some(arrived) = to.receive().filter(|arrived| arrived == frame) {
                return Some(arrived);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    None
}

fn start_qemu(stream: &str, local: &str, remote: &str) -> Option<Child> {
    assert!(Path::new(stream).exists(), "a stream link listens when nobody does");
    Command::new("qemu-system-x86_64")
        .args(["-machine", "none", "-nodefaults", "-display", "none"])
        .args(["-netdev", &format!("stream,id=s,server=off,addr.type=unix,addr.path={stream}")])
        .args(["-netdev"])
        .arg(format!("dgram,id=d,local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"))
        .args(["-netdev", "hubport,id=hs,hubid=0,netdev=s", "-netdev", "hubport,id=hd,hubid=0,netdev=d"])
        .stdin(Stdio::null())
        .spawn()
        .ok()
}
