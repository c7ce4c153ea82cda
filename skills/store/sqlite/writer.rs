//! The one writer: takes all writes that wait into one transaction, and answers after its commit.

use super::writes::Write;
use super::{StoreError, Time, Written, generation};
use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use svc::runtime::threads::Thread;

/// Writes that may wait.
const QUEUE_WRITES: usize = 1024;
/// Writes of one transaction at most.
const BATCH_WRITES: usize = 256;
/// A write that finds no room in the queue gives up after this.
const QUEUE_WAIT: Duration = Duration::from_secs(2);

/// Called with the commit's outcome.
type Answer = Box<dyn FnOnce(Result<u64, StoreError>) + Send>;
/// Where a write happens: an open transaction and its generation, or why there is none.
type Place<'a> = Result<(&'a Connection, u64), StoreError>;
/// Runs inside the transaction; whether it may stay, and whom to tell.
type Job = Box<dyn FnOnce(Place) -> (Result<(), StoreError>, Answer) + Send>;

/// The door to the writer thread.
pub struct Writer {
    // Stands before the thread: its drop lets the thread end.
    jobs: Sender<Job>,
    trouble: Arc<Mutex<Option<String>>>,
    _thread: Thread,
}

impl Writer {
    /// Starts the thread.
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        let (jobs, waiting) = bounded(QUEUE_WRITES);
        let trouble = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&trouble);
        let thread = Thread::spawn("writer", move || run(&connection, &waiting, &theirs))?;
        Ok(Self { jobs, trouble, _thread: thread })
    }

    /// Why the last transaction failed, if it did.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does one write and waits until it is on disk.
    pub fn write<T: Send + 'static>(
        &self,
        now: Time,
        write: impl FnOnce(&Write) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Written<T>, StoreError> {
        let (sender, receiver) = bounded(1);
        let job: Job = Box::new(move |place| {
            let done =
                place.and_then(|(connection, generation)| write(&Write { connection, generation, now }));
            let stays = done.as_ref().map(|_| ()).map_err(Clone::clone);
            let answer: Answer = Box::new(move |committed| {
                let answer = done.and_then(|value| committed.map(|generation| Written { value, generation }));
                // The asker waits below, so that this arrives.
                let _ = sender.send(answer);
            });
            (stays, answer)
        });
        self.jobs.send_timeout(job, QUEUE_WAIT).map_err(|_| StoreError::Overloaded)?;
        // The sender is dropped unused only when the write panicked.
        receiver.recv().unwrap_or_else(|_| Err(StoreError::Unavailable("the write met a bug".into())))
    }
}

fn run(connection: &Connection, waiting: &Receiver<Job>, trouble: &Mutex<Option<String>>) {
    while let Ok(first) = waiting.recv() {
        let batch = std::iter::once(first).chain(waiting.try_iter()).take(BATCH_WRITES);
        let mut answers = Vec::new();
        let committed = transact(connection, batch, &mut answers);
        if let Err(error) = &committed {
            log::error!("a transaction of {} writes failed: {error}", answers.len());
        }
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) =
            committed.as_ref().err().map(ToString::to_string);
        for answer in answers {
            answer(committed.clone());
        }
    }
}

/// One transaction; the generation after it.
fn transact(
    connection: &Connection,
    batch: impl Iterator<Item = Job>,
    answers: &mut Vec<Answer>,
) -> Result<u64, StoreError> {
    let begun = connection.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::from);
    let outcome = begun.and_then(|()| generation(connection));
    let before = match outcome {
        Ok(generation) => generation,
        Err(error) => {
            answers.extend(batch.map(|job| job(Err(error.clone())).1));
            return Err(error);
        }
    };
    let mut stays = false;
    let done = run_jobs(connection, before + 1, batch, answers, &mut stays);
    let committed = done.and_then(|()| {
        if stays {
            let sql = "UPDATE meta SET value = ?1 WHERE key = 'generation'";
            connection.prepare_cached(sql)?.execute([super::rows::int(before + 1)])?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(if stays { before + 1 } else { before })
    });
    if committed.is_err() && !connection.is_autocommit() {
        // After a failed commit the transaction may still be open.
        let _ = connection.execute_batch("ROLLBACK");
    }
    committed
}

/// Runs each job in a savepoint of its own, so that one refusal does not touch the others.
fn run_jobs(
    connection: &Connection,
    generation: u64,
    batch: impl Iterator<Item = Job>,
    answers: &mut Vec<Answer>,
    stays: &mut bool,
) -> Result<(), StoreError> {
    for job in batch {
        connection.execute_batch("SAVEPOINT one")?;
        let rows_before = connection.total_changes();
        let outcome = catch_unwind(AssertUnwindSafe(|| job(Ok((connection, generation)))));
        let done = match outcome {
            Ok((done, answer)) => {
                answers.push(answer);
                done
            }
            Err(_) => Err(StoreError::Unavailable("the write panicked".into())),
        };
        if connection.is_autocommit() {
            // SQLite has rolled the whole transaction back, as it does on a full disk.
            return Err(done.err().unwrap_or(StoreError::Unavailable("the transaction is gone".into())));
        }
        match done {
            Ok(()) => *stays |= connection.total_changes() != rows_before,
            Err(error @ (StoreError::Full(_) | StoreError::Overloaded)) => return Err(error),
            Err(error) => {
                if let StoreError::Unavailable(text) = error {
                    log::error!("a write failed: {text}");
                }
                connection.execute_batch("ROLLBACK TO one")?;
            }
        }
        connection.execute_batch("RELEASE one")?;
    }
    Ok(())
}
