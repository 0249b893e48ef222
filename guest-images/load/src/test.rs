//! Client and server together, over the loopback interface.

use std::net::TcpListener;
use std::thread;

use crate::options::Options;
use crate::{run, server};

/// What the client reports.
fn exchange(client: &str) -> Result<String, String> {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let parse =
        |line: String| Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap();
    let server = thread::spawn(move || {
        let options = Options::parse(&["serve".to_owned()]).unwrap();
        server::serve_on(&listener, &options)
    });
    let report = run(&parse(format!("{client} --port {port}"))).map_err(|error| error.to_string());
    server.join().unwrap().map_err(|error| error.to_string())?;
    report
}

#[track_caller]
fn has(report: &str, parts: &[&str]) {
    for part in parts {
        assert!(report.contains(part), "{part} is not in {report}");
    }
}

#[test]
fn requests_and_responses_are_counted_and_timed() {
    let report =
        exchange("rr ::1 --request 80000 --response 70000 --count 20 --warm-up 5 --flows 3 --verify")
            .unwrap();
    has(&report, &["\"transactions\": 60", "\"request\": 80000", "\"p99\": ", "\"received_bytes\": 6000000"]);
}

#[test]
fn streams_arrive_whole_from_several_threads() {
    let report =
        exchange("stream 127.0.0.1 --bytes 3000001 --flows 5 --threads 2 --write 100000 --verify").unwrap();
    has(
        &report,
        &["\"bytes\": 15000005", "\"received_bytes\": 15000005", "\"threads\": 2", "\"verified\": true"],
    );
}

#[test]
fn streams_without_copying_wait_for_their_completions() {
    let report = exchange("stream ::1 --bytes 5000000 --flows 2 --write 60000 --zerocopy --verify").unwrap();
    let number = |name: &str| -> u64 {
        let rest = report.split(&format!("\"{name}\": ")).nth(1).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    assert_eq!(number("bytes"), 10_000_000);
    assert!(number("sends") >= 10_000_000 / 60_000);
    assert_eq!(number("zerocopy_completed"), number("sends"));
}

#[test]
fn a_time_ends_a_run() {
    let report = exchange("rr 127.0.0.1 --seconds 0.05").unwrap();
    has(&report, &["\"transactions\": ", "\"seconds\": 0."]);
    assert!(!report.contains("\"transactions\": 0,"), "{report}");
    let report = exchange("stream 127.0.0.1 --seconds 0.05 --write 1000").unwrap();
    has(&report, &["\"megabits_per_second\": "]);
}

#[test]
fn datagrams_are_counted() {
    // So few that the socket has room for all of them, should the receiver not run for a while.
    let report = exchange("udp 127.0.0.1 --count 20 --flows 2 --size 1200 --rate 5000 --verify").unwrap();
    has(&report, &["\"sent\": 40", "\"received\": 40", "\"lost\": 0", "\"reordered\": 0"]);
}

#[test]
fn no_server_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let talker = thread::spawn(move || drop(listener.accept()));
    let line = format!("rr 127.0.0.1 --port {port}");
    let options = Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap();
    assert!(run(&options).is_err());
    talker.join().unwrap();
}
