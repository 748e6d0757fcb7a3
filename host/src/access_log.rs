//! One JSON line on stdout for each request.
//!
//! Workers gather lines in a buffer of their own and hand it to one thread that
//! writes, a whole buffer with one call, so that lines never mix. Whoever reads
//! the log can be slow or gone: what does not fit into the queue is dropped and
//! counted, and no worker ever waits.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::metrics::Metrics;

mod line;

#[cfg(test)]
mod tests;

pub use line::Line;

/// Bytes after which a buffer is handed over.
const BATCH: usize = 32 << 10;

/// Bytes that a buffer begins with, so that the last line of a batch fits in.
const CAPACITY: usize = BATCH + (8 << 10);

/// A buffer that long lines have made larger than this is not used again.
const LARGEST: usize = 4 * CAPACITY;

/// Buffers that may wait for the writer.
const QUEUE: usize = 64;

/// How long is waited before trying again, where there is nothing to wait on: a
/// full queue, or a log whose descriptor is in non-blocking mode.
const RETRY: Duration = Duration::from_millis(5);

/// How long the gateway's end may be held up by a reader that is slow.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread that writes, as others see it. Copies stand for the same thread.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: SyncSender<Task>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Lines that were lost.
    dropped: Arc<AtomicU64>,
    /// Empty buffers.
    spare: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
enum Task {
    Write(Batch),
    /// Say so when all that came before is written.
    Report(SyncSender<()>),
}

/// Whole lines.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

impl Writer {
    /// Starts the thread, which writes to stdout.
    pub fn start(metrics: &Metrics) -> io::Result<Self> {
        Self::start_on(io::stdout().as_fd().try_clone_to_owned()?, metrics.log_dropped())
    }

    fn start_on(to: OwnedFd, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let shared = Arc::new(Shared { dropped, spare: Mutex::default() });
        let (queue, tasks) = sync_channel(QUEUE);
        let sink = Sink { file: to.into(), shared: shared.clone(), has_failed: false };
        thread::Builder::new().name("access-log".into()).spawn(move || sink.run(tasks))?;
        Ok(Self { queue, shared })
    }

    /// Waits until all that was flushed is written, for two seconds at most.
    pub fn finish(&self) {
        if !self.finish_within(PATIENCE) {
            tracing::warn!("nobody takes the access log's last lines; they are lost");
        }
    }

    fn finish_within(&self, patience: Duration) -> bool {
        let (done, report) = sync_channel(1);
        let deadline = Instant::now() + patience;
        let mut task = Task::Report(done);
        while let Err(TrySendError::Full(again)) = self.queue.try_send(task) {
            if Instant::now() >= deadline {
                return false;
            }
            task = again;
            thread::sleep(RETRY);
        }
        report.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

/// One worker's log.
#[derive(Debug)]
pub struct AccessLog {
    batch: RefCell<Batch>,
    writer: Writer,
}

impl AccessLog {
    pub fn new(writer: Writer) -> Self {
        Self { batch: RefCell::default(), writer }
    }

    /// Adds a line. It is handed over with the rest when the buffer is full.
    pub fn write(&self, line: &Line<'_>) {
        let mut batch = self.batch.borrow_mut();
        if batch.bytes.capacity() == 0 {
            batch.bytes = self.writer.shared.buffer();
        }
        line.write(&mut batch.bytes);
        batch.lines += 1;
        if batch.bytes.len() >= BATCH {
            drop(batch);
            self.flush();
        }
    }

    /// Hands over what is there. To be called some times a second, so that lines
    /// don't wait for others.
    pub fn flush(&self) {
        let batch = self.batch.take();
        let lines = batch.lines;
        if lines > 0 && self.writer.queue.try_send(Task::Write(batch)).is_err() {
            self.writer.shared.dropped.fetch_add(lines, Relaxed);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Shared {
    fn buffer(&self) -> Vec<u8> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Vec::with_capacity(CAPACITY))
    }

    fn take_back(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.capacity() <= LARGEST && spare.len() < QUEUE / 4 {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

/// The thread's own side.
struct Sink {
    file: File,
    shared: Arc<Shared>,
    has_failed: bool,
}

impl Sink {
    /// Runs until all senders are gone.
    fn run(mut self, tasks: Receiver<Task>) {
        for task in tasks {
            match task {
                Task::Write(batch) => self.write_batch(batch),
                Task::Report(done) => drop(done.try_send(())),
            }
        }
    }

    fn write_batch(&mut self, batch: Batch) {
        if let Err(error) = self.write(&batch.bytes) {
            self.shared.dropped.fetch_add(batch.lines, Relaxed);
            // Once: a disk that is full or a reader that is gone would fill the
            // other log as well.
            if !self.has_failed {
                tracing::error!(%error, "the access log can't be written; lines are lost");
                self.has_failed = true;
            }
        }
        self.shared.take_back(batch.bytes);
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
