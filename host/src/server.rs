//! Listeners and connections of one worker.
//!
//! Every worker has a socket of its own for each address (`SO_REUSEPORT`), so
//! the kernel spreads connections and no connection changes threads.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net, sync::Notify};

use crate::{gateway::Settings, worker::Worker};

mod connection;

pub use connection::Connection;

/// Connections that the kernel may keep waiting on one socket.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept, which is nearly always a want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One socket for each worker. For a fixed port the first try is without
/// `SO_REUSEPORT`, so that an address that another process listens on is an
/// error and not shared with it; port 0 takes a free one for all.
pub fn bind(address: SocketAddr, workers: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    let first = socket(address, true)?;
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < workers {
        sockets.push(socket(bound, true)?);
    }
    Ok((bound, sockets))
}

/// The socket of the admin address, which no worker has.
pub fn bind_admin(address: SocketAddr) -> io::Result<TcpListener> {
    socket(address, false)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The worker's open listeners, by configured address.
#[derive(Default)]
pub struct Listeners {
    open: HashMap<SocketAddr, Rc<Listener>>,
}

/// What a listener and its connections share.
pub struct Listener {
    /// As configured, by which the serving configuration is asked for its
    /// settings.
    pub address: SocketAddr,
    /// What holds for a connection that comes when the configuration that
    /// serves has just left the address out.
    settings: Rc<Settings>,
    /// Until when its connections may go on, once it closes.
    closing: Cell<Option<Instant>>,
    close: Notify,
    /// Tells each connection of the closing.
    connections: RefCell<slab::Slab<Rc<connection::Closer>>>,
}

impl Listeners {
    pub fn open(&mut self, worker: &Rc<Worker>, address: SocketAddr, socket: TcpListener) {
        let Some(settings) = worker.active().listener(address) else { return };
        let listener = Rc::new(Listener {
            address,
            settings,
            closing: Cell::new(None),
            close: Notify::new(),
            connections: RefCell::default(),
        });
        self.open.insert(address, listener.clone());
        let worker = worker.clone();
        tokio::task::spawn_local(async move {
            match net::TcpListener::from_std(socket) {
                Ok(socket) => listener.accept(worker, socket).await,
                Err(error) => tracing::error!(%address, %error, "listener can't be used"),
            }
        });
    }

    pub fn close(&mut self, address: SocketAddr, drain: Duration) {
        if let Some(listener) = self.open.remove(&address) {
            listener.shut(drain);
        }
    }

    pub fn close_all(&mut self, drain: Duration) {
        for (_, listener) in self.open.drain() {
            listener.shut(drain);
        }
    }
}

impl Listener {
    fn shut(&self, drain: Duration) {
        let until = Instant::now() + drain;
        self.closing.set(Some(until));
        self.close.notify_one();
        for (_, connection) in self.connections.borrow().iter() {
            connection.close(until);
        }
    }

    /// Accepts until the listener closes, and then whoever has come before
    /// that: the kernel has told them that they are connected.
    async fn accept(self: Rc<Self>, worker: Rc<Worker>, socket: net::TcpListener) {
        let _open = worker.open();
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = self.close.notified() => break,
            };
            match accepted {
                Ok((stream, client)) => self.serve(&worker, stream, client),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(address = %self.address, %error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        let Ok(socket) = socket.into_std() else { return };
        while let Ok((stream, client)) = socket.accept() {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = net::TcpStream::from_std(stream)
            {
                self.serve(&worker, stream, client);
            }
        }
    }

    fn serve(self: &Rc<Self>, worker: &Rc<Worker>, stream: net::TcpStream, client: SocketAddr) {
        tokio::task::spawn_local(connection::run(worker.clone(), self.clone(), stream, client));
    }
}

/// Errors of a connection that broke while it waited (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused | Interrupted)
}
