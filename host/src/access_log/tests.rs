#![allow(clippy::unwrap_used)]

use std::io::{PipeReader, Read, pipe};

use super::{line::tests::PLAIN, *};

fn writer() -> (Writer, PipeReader, Arc<AtomicU64>) {
    let (reader, writer) = pipe().unwrap();
    let dropped = Arc::new(AtomicU64::new(0));
    (Writer::start_on(writer.into(), dropped.clone()).unwrap(), reader, dropped)
}

/// All that comes until the writer ends.
fn read_all(mut reader: PipeReader) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn lines_come_when_flushed() {
    let (writer, mut reader, _) = writer();
    let worker = AccessLog::new(writer.clone());
    worker.flush();
    worker.write(&PLAIN);
    worker.flush();
    let mut first = [0; 1];
    reader.read_exact(&mut first).unwrap();
    worker.write(&PLAIN);
    drop(worker);
    assert!(writer.finish_within(LONG));
    drop(writer);
    assert_eq!(first, *b"{");
    assert_eq!(read_all(reader).lines().count(), 2);
}

#[test]
fn lines_of_several_workers_do_not_mix() {
    let (writer, reader, dropped) = writer();
    let text = thread::scope(|scope| {
        let text = scope.spawn(|| read_all(reader));
        let workers = (0..4).map(|worker| {
            let log = AccessLog::new(writer.clone());
            scope.spawn(move || {
                for line in 0..5000 {
                    log.write(&Line { status: worker, bytes_sent: line, ..PLAIN });
                }
            })
        });
        workers.collect::<Vec<_>>().into_iter().for_each(|worker| worker.join().unwrap());
        assert!(writer.finish_within(LONG));
        drop(writer);
        text.join().unwrap()
    });
    let mut next = [0; 4];
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let worker = line["status"].as_u64().unwrap() as usize;
        let number = line["bytes_sent"].as_u64().unwrap();
        assert!(number >= next[worker], "out of order");
        next[worker] = number + 1;
    }
    assert_eq!(text.lines().count() as u64 + dropped.load(Relaxed), 20_000);
}

/// Nobody reads: lines are dropped and counted, and nobody waits. What was taken
/// is whole when somebody reads at last.
#[test]
fn a_reader_that_sleeps_blocks_nobody() {
    let (writer, reader, dropped) = writer();
    let worker = AccessLog::new(writer.clone());
    let mut written = 0;
    while dropped.load(Relaxed) == 0 {
        worker.write(&PLAIN);
        written += 1;
    }
    let lost = thread::scope(|scope| {
        let text = scope.spawn(|| read_all(reader));
        drop(worker);
        assert!(writer.finish_within(LONG));
        drop(writer);
        let text = text.join().unwrap();
        assert!(text.lines().all(|line| line.starts_with('{') && line.ends_with('}')));
        written - text.lines().count() as u64
    });
    assert_eq!(lost, dropped.load(Relaxed));
}

#[test]
fn a_reader_that_is_gone_costs_lines_only() {
    let (writer, reader, dropped) = writer();
    drop(reader);
    let worker = AccessLog::new(writer.clone());
    for _ in 0..1000 {
        worker.write(&PLAIN);
    }
    drop(worker);
    assert!(writer.finish_within(LONG));
    drop(writer);
    assert_eq!(dropped.load(Relaxed), 1000);
}

/// A writer that is stuck does not keep the gateway from ending.
#[test]
fn finish_has_an_end() {
    let (writer, _reader, dropped) = writer();
    let worker = AccessLog::new(writer.clone());
    while dropped.load(Relaxed) == 0 {
        worker.write(&PLAIN);
    }
    drop(worker);
    assert!(!writer.finish_within(Duration::from_millis(1)));
}

#[test]
fn buffers_are_used_again() {
    let (writer, reader, _) = writer();
    let worker = AccessLog::new(writer.clone());
    worker.write(&PLAIN);
    worker.flush();
    while writer.shared.spare.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    worker.write(&PLAIN);
    assert!(writer.shared.spare.lock().unwrap().is_empty());
    drop((worker, reader));
}
