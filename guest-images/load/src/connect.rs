//! Connections of a client.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::control::{self, Order};
use crate::options::Options;

/// The connection over which a client says what is to be done. The server may not be there yet, or its address
/// not be reachable for the first moments.
pub(crate) fn order(peer: IpAddr, options: &Options, order: &Order) -> io::Result<TcpStream> {
    let address = SocketAddr::new(peer, options.port);
    let give_up = Instant::now() + PATIENCE;
    let mut control = loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= give_up => {
                return Err(io::Error::new(error.kind(), format!("no server at {address}: {error}")));
            }
            Err(_) => thread::sleep(RETRY),
        }
    };
    order.send(&mut control)?;
    control::receive_number(&mut control)?;
    Ok(control)
}

/// A connection that carries data. Options are set before it is made, because some count only then.
pub(crate) fn data(peer: IpAddr, options: &Options, flow: u64) -> io::Result<TcpStream> {
    let address = SocketAddr::new(peer, options.port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    for option in &options.sockets {
        option.set(&socket)?;
    }
    socket.connect(&address.into())?;
    let mut stream = TcpStream::from(socket);
    control::send_number(&mut stream, flow)?;
    Ok(stream)
}

const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(10);
