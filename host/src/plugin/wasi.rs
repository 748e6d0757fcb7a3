//! What a module that was built for WASI gets: clocks, randomness, and its
//! standard output and error as lines of the gateway's log. No files, no
//! sockets, no arguments, and only the environment that `allow` names.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    WasiCtx, WasiCtxBuilder,
    cli::{IsTerminal, StdoutStream},
};

use super::ModuleContext;

/// Longest line that is kept together.
const LINE: usize = 8 << 10;

/// The permissions of one instance.
pub fn context(module: &Arc<ModuleContext>) -> WasiCtx {
    let mut builder = WasiCtxBuilder::new();
    builder.stdout(LogStream::new(module, "stdout")).stderr(LogStream::new(module, "stderr"));
    for (name, value) in &module.env {
        builder.env(name, value);
    }
    builder.build()
}

/// Turns what a guest prints into log lines.
#[derive(Clone)]
struct LogStream {
    module: Arc<ModuleContext>,
    stream: &'static str,
    line: Arc<Mutex<Vec<u8>>>,
}

impl LogStream {
    fn new(module: &Arc<ModuleContext>, stream: &'static str) -> Self {
        Self { module: module.clone(), stream, line: Arc::default() }
    }

    fn take(&self, bytes: &[u8]) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        for &byte in bytes {
            if byte != b'\n' && line.len() < LINE {
                line.push(byte);
                continue;
            }
            let text = String::from_utf8_lossy(&line);
            self.module.log(tracing::Level::INFO, &text, None, Some(self.stream));
            line.clear();
            if byte != b'\n' {
                line.push(byte);
            }
        }
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
