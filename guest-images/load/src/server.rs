//! The server: does what clients ask for.

use std::io;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::thread;

use crate::control::{self, Kind, Order};
use crate::options::Options;
use crate::report::Object;
use crate::socket::processor_seconds;
use crate::{rr, stream, udp};

/// Serves as many clients as it is told, one after the other.
pub(crate) fn serve(options: &Options) -> io::Result<String> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, options.port))
        .map_err(|error| io::Error::new(error.kind(), format!("port {}: {error}", options.port)))?;
    serve_on(&listener, options)
}

pub(crate) fn serve_on(listener: &TcpListener, options: &Options) -> io::Result<String> {
    for option in &options.sockets {
        // Connections inherit them; an option of datagrams is for the other socket.
        if let Err(error) = option.set(listener)
            && !option.is_of_datagrams()
        {
            return Err(error);
        }
    }
    let mut total = control::Result::default();
    for _ in 0..options.runs {
        total.add(serve_one(listener, options)?);
    }
    Ok(Object::new("server")
        .number("runs", options.runs)
        .number("received_bytes", total.bytes)
        .number("messages", total.messages)
        .number("wrong", total.wrong)
        .finish())
}

fn serve_one(listener: &TcpListener, options: &Options) -> io::Result<control::Result> {
    let mut control = listener.accept()?.0;
    let order = Order::receive(&mut control)?;
    let before = processor_seconds();
    let mut result = if order.kind == Kind::Udp {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, listener.local_addr()?.port()))?;
        for option in options.sockets.iter().filter(|option| !option.is_of_streams()) {
            option.set(&socket)?;
        }
        control::send_number(&mut control, 0)?;
        udp::serve(&mut control, &socket, &order)?
    } else {
        control::send_number(&mut control, 0)?;
        serve_connections(listener, order)?
    };
    let after = processor_seconds();
    result.user_microseconds = ((after.0 - before.0) * 1e6) as u64;
    result.system_microseconds = ((after.1 - before.1) * 1e6) as u64;
    result.send(&mut control)?;
    Ok(result)
}

fn serve_connections(listener: &TcpListener, order: Order) -> io::Result<control::Result> {
    let mut flows = Vec::new();
    for _ in 0..order.flows {
        let mut stream = listener.accept()?.0;
        flows.push(thread::spawn(move || {
            let flow = control::receive_number(&mut stream)?;
            match order.kind {
                Kind::Rr => rr::serve(&mut stream, flow, &order),
                Kind::Stream | Kind::Udp => stream::serve(&mut stream, flow, &order),
            }
        }));
    }
    let mut total = control::Result::default();
    for flow in flows {
        total.add(flow.join().map_err(|_| io::Error::other("a flow has died"))??);
    }
    Ok(total)
}
