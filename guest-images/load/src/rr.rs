//! Requests and responses: one at a time on each connection, each timed.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::connect;
use crate::control::{self, Kind, Order};
use crate::options::{Amount, Options};
use crate::pattern::Pattern;
use crate::report::{Object, latencies, rate};
use crate::socket::processor_seconds;

pub(crate) fn run(peer: IpAddr, options: &Options) -> io::Result<String> {
    let order = Order {
        kind: Kind::Rr,
        flows: options.flows as u64,
        request: options.request as u64,
        response: options.response as u64,
        verify: options.verify,
    };
    let mut control = connect::order(peer, options, &order)?;
    let pattern = Arc::new(Pattern::new(options.request.max(options.response)));
    let start = Arc::new(Barrier::new(options.flows));
    let before = processor_seconds();
    let mut flows = Vec::new();
    for number in 0..options.flows as u64 {
        let stream = connect::data(peer, options, number)?;
        let flow = Flow { stream, number, pattern: Arc::clone(&pattern), options: options.clone() };
        let start = Arc::clone(&start);
        flows.push(thread::spawn(move || flow.run(&start)));
    }
    let (mut times, mut longest) = (Vec::new(), Duration::ZERO);
    for flow in flows {
        let (of_flow, time) = flow.join().map_err(|_| io::Error::other("a flow has died"))??;
        times.extend(of_flow);
        longest = longest.max(time);
    }
    let after = processor_seconds();
    let result = control::Result::receive(&mut control)?;
    result.check()?;
    let count = times.len() as u64;
    Ok(Object::new("rr")
        .number("flows", options.flows as u64)
        .number("request", order.request)
        .number("response", order.response)
        .number("transactions", count)
        .fraction("seconds", longest.as_secs_f64(), 6)
        .fraction("transactions_per_second", rate(count as f64, longest), 1)
        .object("latency_us", &latencies(&mut times))
        .truth("verified", options.verify)
        .processor(before, after)
        .server(&result)
        .finish())
}

/// One connection of a client.
struct Flow {
    stream: TcpStream,
    number: u64,
    pattern: Arc<Pattern>,
    options: Options,
}

impl Flow {
    /// Returns the time of each transaction in nanoseconds, and of all together.
    fn run(mut self, start: &Barrier) -> io::Result<(Vec<u64>, Duration)> {
        let mut buffer = vec![0; self.options.response];
        start.wait();
        for transaction in 0..self.options.warm_up {
            self.transact(transaction, &mut buffer)?;
        }
        let mut times = Vec::new();
        let began = Instant::now();
        let mut now = began;
        let amount = self.options.amount;
        let is_done = |count: u64, now: Instant| match amount {
            Amount::Count(wanted) => count >= wanted,
            Amount::Time(time) => now - began >= time,
        };
        while !is_done(times.len() as u64, now) {
            self.transact(self.options.warm_up + times.len() as u64, &mut buffer)?;
            let then = Instant::now();
            times.push((then - now).as_nanos() as u64);
            now = then;
        }
        Ok((times, now - began))
    }

    fn transact(&mut self, transaction: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Options { request, response, verify, .. } = self.options;
        self.stream.write_all(self.pattern.piece(self.number, transaction * request as u64, request))?;
        self.stream.read_exact(buffer)?;
        let flow = response_flow(self.number);
        if verify && let Some(at) = self.pattern.mismatch(flow, transaction * response as u64, buffer) {
            return Err(io::Error::other(format!(
                "byte {at} of flow {} is wrong in the response",
                self.number
            )));
        }
        Ok(())
    }
}

/// The server's side of one connection.
pub(crate) fn serve(stream: &mut TcpStream, flow: u64, order: &Order) -> io::Result<control::Result> {
    let (request, response) = (order.request as usize, order.response as usize);
    let pattern = Pattern::new(request.max(response));
    let mut buffer = vec![0; request];
    let mut result = control::Result::default();
    while read_message(stream, &mut buffer, &mut result.reads)? {
        let offset = result.messages * order.request;
        if order.verify
            && let Some(at) = pattern.mismatch(flow, offset, &buffer)
        {
            result.first_wrong = if result.wrong == 0 { at } else { result.first_wrong };
            result.wrong += 1;
        }
        let offset = result.messages * order.response;
        stream.write_all(pattern.piece(response_flow(flow), offset, response))?;
        result.messages += 1;
        result.bytes += order.request;
    }
    Ok(result)
}

/// Whether there was another message, whole.
fn read_message(stream: &mut TcpStream, buffer: &mut [u8], reads: &mut u64) -> io::Result<bool> {
    let mut length = 0;
    while length < buffer.len() {
        match stream.read(&mut buffer[length..])? {
            0 if length == 0 => return Ok(false),
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a request ended in its middle")),
            more => length += more,
        }
        *reads += 1;
    }
    Ok(true)
}

/// Responses differ from requests.
fn response_flow(flow: u64) -> u64 {
    flow + 4096
}
