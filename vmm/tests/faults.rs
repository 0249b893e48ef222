//! Stock drivers meet devices that do not behave. The messages are the driver's own.

use std::process::{Command, Output};

/// Runs `script` in a guest with two gVNICs, the second in a network namespace of its own.
fn run(nic: &str, faults: &[&str], script: &str) -> String {
    let mut arguments = vec!["run", "--nic", nic, "--nic", "gve"];
    arguments.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
    let script = format!("{SET_UP}{script}");
    arguments.extend(["--", "sh", "-c", &script]);
    let output: Output = Command::new(env!("CARGO_BIN_EXE_nicvisor")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn expect(output: &str, messages: &[&str]) {
    for message in messages {
        assert!(output.contains(message), "{message:?} is missing in\n{output}");
    }
}

/// Case G3: what the driver says to completions that cannot be.
#[test]
fn completions_that_cannot_be_are_noticed_by_the_driver() {
    let output = run(
        "gve",
        &[
            r#"gve0=completion = { queue = "tx", uses = { nth = 20 }, insert = { completion_tag = 0x3fff } }"#,
            r#"gve0=completion = { queue = "tx", uses = { nth = 40 }, duplicate = 1 }"#,
            r#"gve0=completion = { queue = "tx", uses = { nth = 60 }, rewrite = { type = "reinjection" } }"#,
            r#"gve0=completion = { queue = "tx", uses = { nth = 80 }, rewrite = { type = "miss" } }"#,
        ],
        "ip netns exec other ping -q -c 250 -i 0.1 192.0.2.1; dmesg",
    );
    expect(
        &output,
        &[
            "Invalid TX completion tag: 16383",
            "No pending data completion",
            "Re-injection completion received without corresponding miss completion",
            "No reinjection completion was received for",
        ],
    );
}

/// Case G2: the driver stops waiting for a counter that stands still.
#[test]
fn an_admin_queue_that_stands_still_is_given_up() {
    let fault = r#"gve0=command = { name = "GVE_ADMINQ_REPORT_LINK_SPEED", drop = true }"#;
    let output = run("gve", &[fault], "ethtool eth0; dmesg");
    expect(&output, &["AQ commands timed out, need to reset AQ"]);
}

/// Packets that take the miss path and come back are as good as any.
#[test]
fn the_miss_path_loses_nothing() {
    let output =
        run("gve,miss-interval=3", &[], "ip netns exec other ping -q -c 100 -i 0.05 192.0.2.1; dmesg");
    expect(&output, &["100 packets received, 0% packet loss"]);
    assert!(!output.contains("completion"), "{output}");
}

const SET_UP: &str = "ip netns add other; ip link set eth1 netns other;
    ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up;
    ip -n other address add 192.0.2.2/24 dev eth1; ip -n other link set eth1 up;
";
